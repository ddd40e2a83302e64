use sandbar::{Error, ErrorKind, Processes, SandboxExt, SandboxProvider, Signal, SignalReach};

use crate::args::KillArgs;
use crate::commands::each::{Deed, each};
use crate::commands::resolve::require_or_absent;
use crate::exit::ExitStatus;
use crate::failure::Result;
use crate::output::Printer;

const SIGNAL: Deed = Deed { doing: "signalling process", done: "signalled" };

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
    let pids: Vec<u32> = pids.into_iter().map(u32::from).collect();
    let act = async |pid: &u32| Ok(send(part, *pid, signal, reach).await?.then_some(*pid));
    let absent = |pid: &u32| {
        Error::not_found("kill", format!("process {pid}"))
            .with_hint(format!("`sandbar ps {id}` shows what there is"))
    };
    each(SIGNAL, &pids, act, absent, printer).await
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
