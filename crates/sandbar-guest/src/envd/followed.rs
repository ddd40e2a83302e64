//! A process that is followed to its end, whoever holds its output.

use std::time::Duration;

use futures::future::BoxFuture;
use sandbar_core::{ExitStatus, ProcessExit, UserName};
use sandbar_wire::envd::Channel;
use tokio::time::{Instant, sleep_until};

use super::EnvdClient;
use super::liveness::Identity;
use super::settle::{Life, Settlement, Step};
use crate::operation::Operation;
use crate::start::{Followed, Said, Stopped};

/// A process of the agent's, with what is known of its end.
pub(super) struct Watched {
    client: EnvdClient,
    process: Followed,
    user: Option<UserName>,
    settlement: Settlement,
    begun: Instant,
    deadline: Option<Instant>,
    identity: Option<Identity>,
    look: Option<Look>,
    gave_up: bool,
}

impl Watched {
    /// One that was just started or found, which may take until `timeout` is over.
    pub(super) fn new(
        client: EnvdClient,
        process: Followed,
        user: Option<UserName>,
        timeout: Option<Duration>,
    ) -> Self {
        let begun = Instant::now();
        Self {
            client,
            process,
            user,
            settlement: Settlement::new(),
            begun,
            deadline: timeout.and_then(|timeout| begun.checked_add(timeout)),
            identity: None,
            look: None,
            gave_up: false,
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid
    }

    /// Whether its end is unknown because it went without a word.
    pub(super) fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// The next that it says. After its end there is nothing more to ask for.
    pub(super) async fn next(&mut self, operation: Operation) -> std::result::Result<Said, Stopped> {
        let Self { client, process, user, settlement, begun, deadline, identity, look, gave_up } = self;
        let (pid, begun, deadline) = (process.pid, *begun, *deadline);
        // One for as long as this takes: given up in between, it would forget what it had in hand.
        let mut saying = std::pin::pin!(client.guest.next_of(process, operation));
        loop {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Stopped::TimedOutSilently);
            }
            let wake = match settlement.step(begun.elapsed()) {
                Step::ReadUntil(until) => begun.checked_add(until),
                Step::ReadOn => None,
                Step::GiveUp => {
                    *gave_up = true;
                    return Ok(Said::End(ProcessExit { status: ExitStatus::Unknown, cause: None }));
                }
                Step::Look => {
                    *look = Some(begin_look(client.clone(), pid, user.clone(), *identity, operation));
                    None
                }
            };
            let wake = match (wake, deadline) {
                (Some(wake), Some(deadline)) => Some(wake.min(deadline)),
                (wake, deadline) => wake.or(deadline),
            };
            let looking = async {
                match look.as_mut() {
                    Some(look) => look.await,
                    None => std::future::pending().await,
                }
            };
            let waiting = async {
                match wake {
                    Some(wake) => sleep_until(wake).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                said = &mut saying => {
                    if let Ok(Said::Data(..)) = said {
                        settlement.heard(begun.elapsed());
                    }
                    return said;
                }
                (life, found) = looking => {
                    *look = None;
                    *identity = found;
                    settlement.found(begun.elapsed(), life);
                }
                () = waiting => {}
            }
        }
    }
}

/// What a look comes to.
type Look = BoxFuture<'static, (Life, Option<Identity>)>;

fn begin_look(
    client: EnvdClient,
    pid: u32,
    user: Option<UserName>,
    known: Option<Identity>,
    operation: Operation,
) -> Look {
    Box::pin(async move { client.look(pid, user.as_ref(), known, operation).await })
}

/// The line that stands in for the end that nobody saw.
pub(super) fn note(pid: u32) -> String {
    format!(
        "process {pid} is gone, its output is still held by another one, and nobody told how it ended: its exit code is unknown, and it counts as a failure\n"
    )
}

/// Where a stream's bytes belong.
pub(super) fn is_stderr(channel: Channel) -> bool {
    channel == Channel::Stderr
}
