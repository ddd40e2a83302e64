use std::time::Instant;

use sandbar::{ErrorKind, Sandbox, SandboxProvider, StdinMode};

use crate::commands::interrupt::or_interrupt;
use crate::commands::outcome::{explain, to_json};
use crate::commands::resolve::require;
use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::{Printer, print_json};
use crate::relay::{End, Sink, relay, start};
use crate::settings::{ExecSettings, ProcessSettings};
use crate::signals::Signals;
use crate::stdio::Source;

pub(crate) async fn exec(
    provider: &dyn SandboxProvider,
    settings: ExecSettings,
    printer: Printer,
) -> Result<ExitStatus> {
    let mut signals = Signals::catch()?;
    let ExecSettings { id, process } = settings;
    let sandbox = or_interrupt(&mut signals, require(provider, &id, "exec")).await?;
    let ran = command(sandbox.as_ref(), process, printer, &mut signals).await.map_err(lost_meanwhile)?;
    ran.report(sandbox.as_ref(), printer)
}

/// A sandbox that was there at first and is gone now.
fn lost_meanwhile(mut failure: Failure) -> Failure {
    if failure.status == ExitStatus::Failed {
        failure.error = failure.error.map(|error| match error.kind() {
            ErrorKind::NotFound => {
                error.with_hint("it is gone since: its deadline passed, or somebody destroyed it")
            }
            _ => error,
        });
    }
    failure
}

/// A command that ran.
pub(super) struct Ran {
    pub(super) end: End,
    sink: Sink,
    duration: std::time::Duration,
    timeout: Option<std::time::Duration>,
}

/// Runs a command in a sandbox: the same for `run` and `exec`.
pub(super) async fn command(
    sandbox: &dyn Sandbox,
    settings: ProcessSettings,
    printer: Printer,
    signals: &mut Signals,
) -> Result<Ran> {
    let ProcessSettings { command, spawn, timeout } = settings;
    let input = match spawn.stdin {
        StdinMode::Open => Some(Source::stdin().map_err(Failure::input)?),
        StdinMode::Null => None,
    };
    let started = Instant::now();
    let process = or_interrupt(signals, start(sandbox, &command, spawn)).await?;
    printer.detail(|| format!("started `{}` as process {}", command.program().display(), process.pid));
    let mut sink = if printer.json() { Sink::capture() } else { Sink::pass() };
    let end = relay(process, &mut sink, input, timeout, signals).await?;
    Ok(Ran { end, sink, duration: started.elapsed(), timeout })
}

impl Ran {
    /// Prints what there is to print, and answers the exit status.
    pub(super) fn report(self, sandbox: &dyn Sandbox, printer: Printer) -> Result<ExitStatus> {
        match &self.sink {
            Sink::Capture(captured) => print_json(&to_json(sandbox.id(), self.end, captured, self.duration))?,
            Sink::Pass { .. } => explain(printer, self.end, self.timeout),
        }
        Ok(self.end.status())
    }
}
