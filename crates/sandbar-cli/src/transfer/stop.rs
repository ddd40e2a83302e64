use std::future::Future;
use std::pin::Pin;

use sandbar::Error;

use crate::failure::{Failure, Result};

/// What ends a copy half-way: it comes when somebody asks us to end, and says so.
pub(crate) type Stop<'a> = Pin<&'a mut (dyn Future<Output = Failure> + 'a)>;

/// Does `work` unless `stop` comes first; then it is dropped where it stands.
pub(super) async fn unless_stopped<T>(
    stop: Stop<'_>,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T> {
    tokio::select! {
        biased;
        failure = stop => Err(failure),
        done = work => Ok(done?),
    }
}
