use std::pin::pin;
use std::time::{Duration, Instant};

use sandbar::{
    Command, ErrorKind, Process, ProcessId, Sandbox, SandboxProvider, Signal, SpawnOptions, StdinMode,
};
use tokio::time::timeout;

use crate::commands::interrupt::{interrupted, or_interrupt};
use crate::commands::outcome::{explain, to_json};
use crate::commands::resolve::require;
use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::{Printer, print_json};
use crate::relay::{End, Hold, Input, Sink, Ties, relay, start};
use crate::settings::{ExecSettings, ProcessSettings};
use crate::signals::Signals;
use crate::stdio::Source;
use crate::terminal::{Keys, Screen, Told};

pub(crate) async fn exec(
    provider: &dyn SandboxProvider,
    settings: ExecSettings,
    printer: Printer,
) -> Result<ExitStatus> {
    let mut signals = Signals::catch()?;
    let ExecSettings { id, process } = settings;
    let sandbox = or_interrupt(&mut signals, require(provider, &id, "exec")).await?;
    let ran = command(sandbox.as_ref(), process, printer, &mut signals).await.map_err(lost_meanwhile)?;
    ran.tell_the_way_back(sandbox.as_ref(), printer);
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
    pub(super) pid: ProcessId,
    pub(super) sink: Sink,
    pub(super) duration: Duration,
    pub(super) timeout: Option<Duration>,
}

/// Runs a command in a sandbox: the same for `run` and `exec`.
pub(super) async fn command(
    sandbox: &dyn Sandbox,
    settings: ProcessSettings,
    printer: Printer,
    signals: &mut Signals,
) -> Result<Ran> {
    let ProcessSettings { commands, spawn, timeout: limit, terminal } = settings;
    let source = || Source::stdin().map_err(Failure::input);
    let input = match (terminal, spawn.stdin) {
        (Some(terminal), _) => Input::Typed(source()?, Keys::new(terminal.escape)),
        (None, StdinMode::Open) => Input::Bytes(source()?),
        (None, StdinMode::Null) => Input::None,
    };
    let started = Instant::now();
    let process = start_or_interrupt(sandbox, &commands, &spawn, printer, signals).await?;
    let pid = process.pid;
    let (screen, mut sink) = match terminal {
        Some(_) => {
            let taken = signals.catch_more().and_then(|()| Screen::take(Told::Size));
            if taken.is_err() {
                // Nobody would ever see it. That it can't be ended either is the lesser trouble.
                let _ = process.control.signal(Signal::KILL).await;
            }
            (Some(taken?), Sink::screen())
        }
        None if printer.json() => (None, Sink::capture()),
        None => (None, Sink::pass()),
    };
    let ties = Ties { input, screen, limit, hold: Hold::Own };
    let end = relay(process, &mut sink, ties, signals).await?;
    Ok(Ran { end, pid, sink, duration: started.elapsed(), timeout: limit })
}

/// How long a command that nobody wants any more may take to start, so that it can be ended; as long as one that runs may take to end.
const CLEAN_UP: Duration = Duration::from_secs(2);

/// Starts a command. Whoever asks us to end meanwhile gets his will, and a command that had begun by then is ended.
async fn start_or_interrupt(
    sandbox: &dyn Sandbox,
    commands: &[Command],
    options: &SpawnOptions,
    printer: Printer,
    signals: &mut Signals,
) -> Result<Process> {
    let mut starting = pin!(start_one(sandbox, commands, options, printer));
    let signal = tokio::select! {
        biased;
        signal = signals.next() => signal,
        started = &mut starting => return started,
    };
    let ended = async {
        if let Ok(process) = starting.await {
            // Whoever asks twice does not wait for this.
            let _ = process.control.signal(Signal::KILL).await;
        }
    };
    tokio::select! {
        biased;
        _ = signals.next() => {}
        _ = timeout(CLEAN_UP, ended) => {}
    }
    Err(interrupted(signal))
}

/// Starts the first of `commands` that the sandbox has.
async fn start_one(
    sandbox: &dyn Sandbox,
    commands: &[Command],
    options: &SpawnOptions,
    printer: Printer,
) -> Result<Process> {
    let mut rest = commands.iter();
    loop {
        let command = rest.next().expect("there is a command");
        match start(sandbox, command, options.clone()).await {
            Err(failure) if failure.status == ExitStatus::NotFound && rest.len() > 0 => {}
            started => {
                let process = started?;
                printer.detail(|| {
                    format!("started `{}` as process {}", command.program().display(), process.pid)
                });
                return Ok(process);
            }
        }
    }
}

impl Ran {
    /// Prints what there is to print, and answers the exit status.
    pub(super) fn report(self, sandbox: &dyn Sandbox, printer: Printer) -> Result<ExitStatus> {
        match &self.sink {
            Sink::Capture(captured) => print_json(&to_json(sandbox.id(), self.end, captured, self.duration))?,
            Sink::Pass { .. } | Sink::Screen { .. } => explain(printer, self.end, self.timeout),
        }
        Ok(self.end.status())
    }

    /// Tells a person who left the command how to go back.
    pub(super) fn tell_the_way_back(&self, sandbox: &dyn Sandbox, printer: Printer) {
        if matches!(self.end, End::Detached(_)) {
            let (id, pid) = (sandbox.id(), self.pid);
            printer.note(&format!("left process {pid} running; `sandbar attach {id} {pid}` goes back to it"));
        }
    }
}
