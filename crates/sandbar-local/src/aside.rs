//! Work that blocks, beside the runtime: the store's lock may have to be waited for, and trees take their time.

use sandbar_core::{ErrorKind, Result};

use crate::error::fail;

/// Does `work` on a thread of its own. That it was lost (it panicked, or the runtime is on its way out) is an error of `operation`.
pub(crate) async fn aside<T: Send + 'static>(
    operation: &'static str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|cause| {
        Err(fail(ErrorKind::Unexpected, operation, format!("the work was lost: {cause}")))
    })
}
