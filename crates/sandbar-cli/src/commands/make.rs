use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sandbar::{CreateOptions, Error, ErrorKind, LimitState, Sandbox, SandboxProvider};
use tokio::time::timeout;

use crate::commands::interrupt::interrupted;
use crate::commands::port::{not_to_be_had, tell_ports};
use crate::failure::{Failure, Result};
use crate::output::Printer;
use crate::signals::Signals;

/// How long a sandbox that nobody wants any more may take to come up, so that it can be destroyed. What comes later ends with this process.
const CLEAN_UP: Duration = Duration::from_secs(5);
/// How long destroying may take before it is reported as failed; a folder of a million files takes many seconds.
const DESTROY: Duration = Duration::from_secs(120);

/// Makes a sandbox. Whoever asks us to end meanwhile gets his will, and nothing is left.
pub(super) async fn make(
    provider: &dyn SandboxProvider,
    options: CreateOptions,
    printer: Printer,
    signals: &mut Signals,
) -> Result<Arc<dyn Sandbox>> {
    let has_ports = !options.ports.is_empty();
    let limits_cpu = options.resources.cpu_millis.is_some();
    let mut making = pin!(printer.progress("creating a sandbox", provider.create(options)));
    let signal = tokio::select! {
        biased;
        signal = signals.next() => signal,
        made = &mut making => {
            let sandbox = made.map_err(|error| match error.kind() {
            // What the backend can't make sense of was typed; nothing was made.
            ErrorKind::InvalidInput => Failure::usage(error),
            _ => not_to_be_had(error),
        })?;
            if has_ports {
                tell_ports(sandbox.as_ref(), printer).await;
            }
            if limits_cpu {
                tell_cpu(sandbox.as_ref(), printer).await;
            }
            return Ok(sandbox);
        }
    };
    if let Ok(Ok(sandbox)) = timeout(CLEAN_UP, making).await {
        unmake(sandbox.as_ref(), printer).await?;
    }
    Err(interrupted(signal))
}

/// Says so where the limit on processor time that was asked for holds nothing.
async fn tell_cpu(sandbox: &dyn Sandbox, printer: Printer) {
    // What can't be looked at now, `describe` tells.
    let Ok(record) = sandbox.record().await else { return };
    if record.limits.get("cpu").is_some_and(|limit| limit.state != LimitState::Enforced) {
        printer.warn("the cpu limit is not enforced here; see `sandbar doctor`");
    }
}

/// Destroys a sandbox of ours.
pub(super) async fn unmake(sandbox: &dyn Sandbox, printer: Printer) -> Result<(), Error> {
    let destroying = timeout(DESTROY, sandbox.destroy());
    match printer.progress("destroying the sandbox", destroying).await {
        // That it is gone already is what was wanted.
        Ok(destroyed) => destroyed.map(drop),
        Err(_) => Err(Error::new(
            ErrorKind::Timeout,
            "destroy",
            format!("sandbox `{}` was not gone after {} seconds", sandbox.id(), DESTROY.as_secs()),
        )
        .with_hint(format!("`sandbar destroy {}` tries again", sandbox.id()))),
    }
}
