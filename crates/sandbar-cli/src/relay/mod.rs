//! One command in a sandbox, from its start to its end: what it reads, what it says, and what ends it early.

mod end;
mod input;
mod sink;
mod typed;

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use sandbar::{
    Command, Error, ErrorKind, Process, ProcessControl, ProcessEvent, ProcessExit, Sandbox, SandboxExt,
    Signal, SpawnOptions,
};
use tokio::time::{Instant, sleep_until, timeout};

use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::signals::Signals;
use crate::terminal::Screen;
use input::Fed;

pub(crate) use end::End;
pub(crate) use input::Input;
pub(crate) use sink::{Captured, Sink};

/// How long a command may take to end after it was asked to by a signal of ours, before it is made to.
const GRACE: Duration = Duration::from_secs(2);
/// How long after its timeout the backend may take to report it, before the timeout is declared here. Leaves half of the second that decision
/// 0003 and its tests allow for ending the tree.
const TIMEOUT_SLACK: Duration = Duration::from_millis(500);
/// Longest wait for a signal to be delivered.
const DELIVERY: Duration = Duration::from_secs(1);

/// Starts a command. What can't be started has its own exit code.
pub(crate) async fn start(
    sandbox: &dyn Sandbox,
    command: &Command,
    options: SpawnOptions,
) -> Result<Process> {
    let limited = options.timeout.is_some();
    let spawned = sandbox.require_processes()?.spawn(command, options).await;
    match spawned {
        Ok(process) => Ok(process),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Err(Failure::new(ExitStatus::NotExecutable, error))
        }
        // The time was over before the sandbox said that it had begun.
        Err(error) if limited && error.kind() == ErrorKind::Timeout => {
            Err(Failure::new(ExitStatus::TimedOut, error))
        }
        // There is no such program, or no such sandbox any more.
        Err(error) if error.kind() == ErrorKind::NotFound && sandbox.record().await.is_ok() => {
            Err(Failure::new(ExitStatus::NotFound, error))
        }
        Err(error) => Err(error.into()),
    }
}

/// How a command and this process hang together.
#[derive(Debug)]
pub(crate) struct Ties {
    pub(crate) input: Input,
    /// The caller's terminal, where the command has one.
    pub(crate) screen: Option<Screen>,
    pub(crate) limit: Option<Duration>,
    pub(crate) hold: Hold,
}

/// Whose the command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Ours: if this process is asked to end, so is the command.
    Own,
    /// Somebody else started it: whatever happens here, it runs on.
    Guest,
}

/// Carries bytes until the command ends, is ended, is left alone, or its output can't be delivered. `Err` is a failure of ours; then, too, a
/// command of ours has been told to end. The terminal is as it was afterwards.
pub(crate) async fn relay(
    process: Process,
    sink: &mut Sink,
    ties: Ties,
    signals: &mut Signals,
) -> Result<End> {
    let Process { events, control, .. } = process;
    let Ties { input, mut screen, limit, hold } = ties;
    let control = control.as_ref();
    let followed = async {
        match &mut screen {
            Some(screen) => screen.follow(control).await,
            None => pending().await,
        }
    };
    let carried =
        carry(events, control, sink, input, limit.map(|limit| (limit, Instant::now())), hold, signals);
    let end = tokio::select! {
        biased;
        end = carried => end,
        never = followed => match never {},
    };
    sink.tidy();
    drop(screen);
    end
}

async fn carry(
    mut events: sandbar::ProcessEvents,
    control: &dyn ProcessControl,
    sink: &mut Sink,
    input: Input,
    limit: Option<(Duration, Instant)>,
    hold: Hold,
    signals: &mut Signals,
) -> Result<End> {
    let backstop = limit.map(|(limit, started)| started + limit + TIMEOUT_SLACK);
    let mut pump = pin!(pump(&mut events, sink));
    let mut input = pin!(input::feed(input, control));
    let mut input_open = true;
    // Set once somebody asked us to end: the signal, and when patience is over.
    let mut asked: Option<(Signal, Instant)> = None;
    loop {
        tokio::select! {
            biased;
            signal = signals.next() => {
                if hold == Hold::Guest {
                    return Ok(End::Detached(signal));
                }
                let patience = if asked.is_some() { Duration::ZERO } else { GRACE };
                deliver(control, signal).await;
                asked = Some((signal, Instant::now() + patience));
            }
            pumped = &mut pump => {
                let asked = asked.map(|(signal, _)| signal);
                return settle(pumped, (hold == Hold::Own).then_some(control), asked).await;
            }
            fed = &mut input, if input_open => {
                input_open = false;
                match fed {
                    Ok(Fed::All) => {}
                    Ok(Fed::HungUp) if hold == Hold::Own => {
                        deliver(control, Signal::HUP).await;
                        asked = asked.or(Some((Signal::HUP, Instant::now() + GRACE)));
                    }
                    // As if the line had been hung up.
                    Ok(Fed::Detach | Fed::HungUp) => return Ok(End::Detached(Signal::HUP)),
                    Err(failure) => {
                        if hold == Hold::Own {
                            deliver(control, Signal::KILL).await;
                        }
                        return Err(failure);
                    }
                }
            }
            () = at(asked.map(|(_, at)| at)) => {
                deliver(control, Signal::KILL).await;
                return Ok(End::Interrupted(asked.map_or(Signal::TERM, |(signal, _)| signal)));
            }
            () = at(backstop) => {
                deliver(control, Signal::KILL).await;
                return Ok(End::TimedOut);
            }
        }
    }
}

/// Why no more events come.
enum Pumped {
    Exit(ProcessExit),
    /// The backend can't say more.
    Lost(Error),
    /// Our reader is gone, or our output can't be written.
    Undelivered(std::io::Error),
}

async fn pump(events: &mut sandbar::ProcessEvents, sink: &mut Sink) -> Pumped {
    let exit = loop {
        match events.next().await {
            Some(Ok(ProcessEvent::Exit(exit))) => break exit,
            Some(Ok(event)) => {
                if let Err(error) = sink.take(event).await {
                    return Pumped::Undelivered(error);
                }
            }
            Some(Err(error)) => {
                // What was said before has to be out before the error is.
                return match sink.finish().await {
                    Ok(()) => Pumped::Lost(error),
                    Err(error) => Pumped::Undelivered(error),
                };
            }
            None => {
                let message = "the command's events ended without its exit: how it ended is unknown";
                return Pumped::Lost(Error::new(ErrorKind::Protocol, "wait for command", message));
            }
        }
    };
    match sink.finish().await {
        Ok(()) => Pumped::Exit(exit),
        Err(error) => Pumped::Undelivered(error),
    }
}

/// `own` is how to end the command, where it is ours.
async fn settle(pumped: Pumped, own: Option<&dyn ProcessControl>, asked: Option<Signal>) -> Result<End> {
    match pumped {
        Pumped::Exit(exit) => Ok(End::Exited(exit)),
        Pumped::Lost(error) if error.kind() == ErrorKind::Timeout => Ok(End::TimedOut),
        // We ended it ourselves, so that it is gone is no surprise.
        Pumped::Lost(error) => match asked {
            Some(signal) => Ok(End::Interrupted(signal)),
            None => Err(error.into()),
        },
        Pumped::Undelivered(error) => {
            if let Some(control) = own {
                deliver(control, Signal::KILL).await;
            }
            Err(Failure::output(error))
        }
    }
}

/// Sends a signal to the command's tree. That it does not arrive is no reason to stop: whoever sends it makes sure otherwise.
async fn deliver(control: &dyn ProcessControl, signal: Signal) {
    let _ = timeout(DELIVERY, control.signal(signal)).await;
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}
