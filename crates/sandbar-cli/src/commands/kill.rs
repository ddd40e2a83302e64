use sandbar::{Error, ErrorKind, Processes, SandboxExt, SandboxProvider, Signal, SignalReach};
use serde_json::json;

use crate::args::KillArgs;
use crate::commands::resolve::require_or_absent;
use crate::exit::ExitStatus;
use crate::failure::Result;
use crate::output::{Printer, print_json};

/// Signals each; one that is absent or can't be signalled does not keep the others.
pub(crate) async fn kill(
    provider: &dyn SandboxProvider,
    args: KillArgs,
    printer: Printer,
) -> Result<ExitStatus> {
    let KillArgs { id, pids, signal, alone } = args;
    let signal = signal.map_or(Signal::TERM, |signal| signal.0);
    let reach = if alone { SignalReach::Process } else { SignalReach::Tree };
    let sandbox =
        printer.progress("looking for the sandbox", require_or_absent(provider, &id, "kill")).await?;
    let part = sandbox.require_processes()?;
    let (mut signalled, mut absent, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for pid in pids.into_iter().map(u32::from) {
        match printer.progress(&format!("signalling process {pid}"), send(part, pid, signal, reach)).await {
            Ok(true) => signalled.push(pid),
            Ok(false) => {
                let error = Error::not_found("kill", format!("process {pid}"));
                printer.error(&error.with_hint(format!("`sandbar ps {id}` shows what there is")));
                absent.push(pid);
            }
            Err(error) => {
                printer.error(&error);
                failed.push(pid);
            }
        }
    }
    if printer.json() {
        print_json(&json!({"version": 1, "signalled": signalled, "absent": absent, "failed": failed}))?;
    }
    Ok(match (failed.as_slice(), absent.as_slice()) {
        ([_, ..], _) => ExitStatus::Failed,
        ([], [_, ..]) => ExitStatus::Absent,
        ([], []) => ExitStatus::Done,
    })
}

async fn send(part: &dyn Processes, pid: u32, signal: Signal, reach: SignalReach) -> Result<bool, Error> {
    match part.signal_any(pid, signal, reach).await {
        // Then it must be one that was started from outside. One that was not is not positively absent.
        Err(error) if error.kind() == ErrorKind::Unsupported && reach == SignalReach::Tree => {
            match part.signal(pid, signal).await {
                Ok(false) => Err(error),
                sent => sent,
            }
        }
        sent => sent,
    }
}
