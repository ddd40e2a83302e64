use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::future::join;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use tokio::sync::watch;

use super::machine::Machine;
use super::process::{Ended, Input, Launched, PipeReader};
use super::run::{Ends, Start, next_output, not_started, prepare};
use super::sandbox::MemorySandbox;
use super::world::BACKEND;
use crate::{
    Error, ExitStatus, Follow, LogChunk, LogEvent, LogOptions, LogStream, MainCommand, MainLogs, MainProcess,
    MainState, MainStatus, RestartPolicy, Result, State,
};

/// Pause before the first new start, so that a command that fails at once does not spin.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause: each is twice the one before, and nobody waits for a service longer than this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A command that ran this long ran well, and the next pause is the first again.
const RAN_WELL: Duration = Duration::from_secs(10);
/// Bytes of output kept; the oldest go first.
const KEPT_BYTES: usize = 1 << 20;

/// The main command of a sandbox.
#[derive(Debug)]
pub(super) struct Main {
    held: Mutex<Held>,
    /// Told whenever something is said or the state is another.
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Held {
    status: MainStatus,
    /// What it said, and the number of its first byte over all that was ever said.
    said: VecDeque<(u64, LogChunk)>,
    kept: usize,
    total: u64,
}

impl Main {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn status(&self) -> MainStatus {
        self.lock().status.clone()
    }

    fn change(&self, change: impl FnOnce(&mut MainStatus)) {
        change(&mut self.lock().status);
        self.changed.send_replace(());
    }

    fn say(&self, stream: LogStream, bytes: bytes::Bytes) {
        {
            let mut held = self.lock();
            let number = held.total;
            held.total += bytes.len() as u64;
            held.kept += bytes.len();
            held.said.push_back((number, LogChunk { at: Timestamp::now(), stream, bytes }));
            while held.kept > KEPT_BYTES
                && let Some((_, chunk)) = held.said.pop_front()
            {
                held.kept -= chunk.bytes.len();
            }
        }
        self.changed.send_replace(());
    }

    /// What was said from byte `from` on, whether more may come, and the number of the next byte.
    fn since(&self, from: u64) -> (Vec<LogEvent>, bool, u64) {
        let held = self.lock();
        let mut events = Vec::new();
        let first = held.said.front().map_or(held.total, |(number, _)| *number);
        if first > from {
            events.push(LogEvent::Lost(first - from));
        }
        let kept = held.said.iter().filter(|(number, _)| *number >= from);
        events.extend(kept.map(|(_, chunk)| LogEvent::Output(chunk.clone())));
        (events, held.status.state != MainState::Exited, held.total)
    }
}

/// Starts the main command, and again as its policy says. The first start has to succeed.
pub(super) fn start(machine: &Arc<Machine>, command: MainCommand) -> Result<()> {
    let (launched, ends) = launch(machine, &command)?;
    let status = MainStatus {
        program: command.command.program().to_string_lossy().into_owned(),
        restart: command.restart,
        state: MainState::Running,
        pid: Some(launched.pid),
        started_at: Some(Timestamp::now()),
        restarts: 0,
        exit: None,
        next_start: None,
        problem: None,
    };
    let held = Held { status, said: VecDeque::new(), kept: 0, total: 0 };
    let main = Arc::new(Main { held: Mutex::new(held), changed: watch::Sender::new(()) });
    machine.set_main(main.clone());
    // The task ends with the sandbox: it holds the machine only while it starts the command again.
    tokio::spawn(supervise(Arc::downgrade(machine), main, command, launched.ended, ends));
    Ok(())
}

async fn supervise(
    machine: Weak<Machine>,
    main: Arc<Main>,
    command: MainCommand,
    mut ended: Ended,
    mut ends: Ends,
) {
    let mut pause = FIRST_PAUSE;
    loop {
        let began = Instant::now();
        join(
            keep(&main, LogStream::Stdout, &ends.stdout, ended.clone()),
            keep(&main, LogStream::Stderr, &ends.stderr, ended.clone()),
        )
        .await;
        let status = ended.wait_for(Option::is_some).await.ok().and_then(|status| *status);
        // What was left behind on purpose may go on writing.
        ends.stdout.discard();
        ends.stderr.discard();
        let mut status = status.unwrap_or(ExitStatus::Unknown);
        if began.elapsed() >= RAN_WELL {
            pause = FIRST_PAUSE;
        }
        loop {
            let again = match command.restart {
                RestartPolicy::No => false,
                RestartPolicy::OnFailure => !status.is_success(),
                RestartPolicy::Always => true,
            };
            let is_over = machine.upgrade().is_none_or(|machine| machine.state() == State::Destroying);
            if !again || is_over {
                main.change(|now| {
                    now.state = MainState::Exited;
                    (now.pid, now.exit) = (None, Some(status));
                });
                return;
            }
            main.change(|now| {
                now.state = MainState::BackingOff;
                (now.pid, now.exit) = (None, Some(status));
                now.next_start = Timestamp::now().checked_add(pause).ok();
            });
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            let Some(machine) = machine.upgrade() else { return };
            match launch(&machine, &command) {
                Ok((launched, new)) => {
                    (ended, ends) = (launched.ended, new);
                    main.change(|now| {
                        now.state = MainState::Running;
                        (now.pid, now.started_at) = (Some(launched.pid), Some(Timestamp::now()));
                        (now.next_start, now.problem) = (None, None);
                        now.restarts += 1;
                    });
                    break;
                }
                // It could be started before, and may be again.
                Err(error) => {
                    main.change(|now| now.problem = Some(error.message().to_owned()));
                    status = ExitStatus::Unknown;
                }
            }
        }
    }
}

async fn keep(main: &Main, stream: LogStream, reader: &PipeReader, mut ended: Ended) {
    while let Some(bytes) = next_output(reader, &mut ended).await {
        main.say(stream, bytes);
    }
}

fn launch(machine: &Arc<Machine>, main: &MainCommand) -> Result<(Launched, Ends)> {
    let start = Start { cwd: main.cwd.clone(), env: main.env.clone(), user: main.user.clone(), tag: None };
    let (launch, ends) = prepare(machine, "create", &main.command, start, Input::Null)?;
    let launched = machine.launch(launch).map_err(|why| not_started("create", &main.command, why))?;
    Ok((launched, ends))
}

#[async_trait]
impl MainProcess for MemorySandbox {
    async fn status(&self) -> Result<Option<MainStatus>> {
        Ok(self.machine("look at the main command")?.main().map(|main| main.status()))
    }

    async fn logs(&self, options: LogOptions) -> Result<MainLogs> {
        let main = self.machine("read logs")?.main().ok_or_else(|| {
            Error::not_found("read logs", format!("a main command of sandbox `{}`", self.id))
                .with_backend(BACKEND)
        })?;
        let changed = main.changed.subscribe();
        let (kept, more, next) = main.since(0);
        let first = stream::iter(options.select(kept).into_iter().map(Ok));
        if options.follow == Follow::No || !more {
            return Ok(first.boxed());
        }
        let rest = stream::unfold(Some((main, changed, next)), move |state| async move {
            let (main, mut changed, mut next) = state?;
            loop {
                changed.mark_unchanged();
                let (mut events, more, following) = main.since(next);
                next = following;
                events.retain(|event| !matches!(event, LogEvent::Output(chunk) if !options.wants(chunk.at)));
                if !events.is_empty() || !more {
                    let events = stream::iter(events.into_iter().map(Ok));
                    return Some((events, more.then_some((main, changed, next))));
                }
                // The sender lives as long as `main` does.
                let _ = changed.changed().await;
            }
        });
        Ok(first.chain(rest.flatten()).boxed())
    }
}
