use sandbar::ProcessControl;

use crate::failure::{Failure, Result};
use crate::stdio::Source;

/// Passes our standard input to the command, and its end. A command that reads no more is no failure: it is how `head` works.
pub(super) async fn feed(source: Option<Source>, control: &dyn ProcessControl) -> Result<()> {
    let Some(source) = source else {
        return std::future::pending().await;
    };
    loop {
        let bytes = source.read().await.map_err(Failure::input)?;
        if bytes.is_empty() {
            // Fails only if the command or its input is gone, and then its exit says more.
            let _ = control.close_stdin().await;
            return Ok(());
        }
        if control.write(bytes).await.is_err() {
            return Ok(());
        }
    }
}
