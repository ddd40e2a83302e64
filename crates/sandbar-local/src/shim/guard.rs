use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{WaitId, WaitIdOptions, waitid};
use sandbar_core::{DeadlineAction, EndCause, ErrorKind, Result, State};
use sandbar_engine::network::NetworkSockets;
use sandbar_observe::Role;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::agent::Configuration;
use super::listener::Listener;
use super::pipes::Pipes;
use super::protocol::{ReadyOrder, Report};
use super::shared::{Shared, hold};
use super::{
    AGENT_SOCKET, create, egress, limits, log, main_command, ports, ready, serve, sleep, start, usage,
};
use crate::audit::{AuditedEnd, Left};
use crate::error::{ErrorForm, engine, fail, io_error};
use crate::home::{StoredRecord, now};
use crate::inside::{Late, Unix};
use crate::teardown::{Ending, Groups};
use crate::{ctl, descriptor, teardown};

/// How long a new agent may take to answer. It takes milliseconds; a machine that swaps may take longer.
const READY: Duration = Duration::from_secs(20);
/// Longest time between two looks at the clock, so that a clock that was set, or a machine that slept, is noticed.
const LONGEST_NAP: Duration = Duration::from_secs(60);
/// After how long a sleep that did not come off at a deadline is tried again.
const PAUSE_AGAIN: Duration = Duration::from_secs(5);
/// How long control groups may take to be empty once the agent is gone.
const EMPTY: Duration = Duration::from_secs(5);
/// How long answers may take to leave the process after the end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A sandbox that lived this long is counted at its end; of shorter ones it would be much of their life.
const WORTH_A_COUNT: Duration = Duration::from_secs(2);
/// How long that count may take: nobody waits for a statistic.
const LAST_COUNT: Duration = Duration::from_secs(1);

/// A shim at work: from the running agent to the end of the sandbox.
#[derive(Debug)]
pub(super) struct Guard {
    shared: Arc<Shared>,
    beginning: Beginning,
}

#[derive(Debug)]
enum Beginning {
    /// The agent was launched just now; its log, what is still to be done, and what it was launched for.
    New(OwnedFd, Wish, Occasion),
    /// The sandbox ran before; the sockets of its network, where it has one.
    Adopted(Option<NetworkSockets>),
}

/// What an agent was launched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// A new sandbox: where it does not come off, there is none.
    Creation,
    /// One that was stopped: where it does not come off, it still is.
    Start,
}

/// What the maker of a sandbox asked for that takes a running agent.
#[derive(Debug)]
pub(super) struct Wish {
    /// Listening already, so that nobody else gets their addresses.
    pub(super) ports: Vec<Listener>,
    pub(super) lifetime_ms: Option<u64>,
    /// The sockets of its network, which a gateway is to serve.
    pub(super) network: Option<NetworkSockets>,
    /// What the agent waits for.
    pub(super) configuration: Option<Configuration>,
    /// What has to succeed inside before it is ready.
    pub(super) ready: Option<ReadyOrder>,
}

/// Why a sandbox' time is over.
enum End {
    Asked,
    Deadline,
    OwnerGone,
    AgentGone,
}

impl Guard {
    /// Over a new sandbox.
    pub(super) fn of_new(shared: Shared, wish: Wish, log: OwnedFd, occasion: Occasion) -> Self {
        Self { shared: Arc::new(shared), beginning: Beginning::New(log, wish, occasion) }
    }

    /// Over one that ran before.
    pub(super) fn of_adopted(shared: Shared, network: Option<NetworkSockets>) -> Self {
        Self { shared: Arc::new(shared), beginning: Beginning::Adopted(network) }
    }

    /// Reports to the caller and watches over the sandbox to its end.
    pub(super) fn run(self, mut pipes: Pipes) -> Result<()> {
        let built = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        match built {
            Ok(runtime) => {
                let done = runtime.block_on(self.guard(&mut pipes));
                // A count that is still going on is no reason to stay.
                runtime.shutdown_background();
                done
            }
            Err(cause) => {
                let error = io_error("create", "the shim's runtime", cause);
                Err(self.give_up(error, &mut pipes))
            }
        }
    }

    async fn guard(mut self, pipes: &mut Pipes) -> Result<()> {
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&self.shared);
        let begun = match self.begin(pipes, &mut tasks).await {
            Ok(begun) => begun,
            Err(error) => {
                let error = self.give_up(error, pipes);
                // Somebody may have asked for the end while it waited to be ready.
                let _ = timeout(LAST_WORDS, shared.all_answered()).await;
                return Err(error);
            }
        };
        pipes.report(&Report::Ready {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            id: shared.folder.id().clone(),
        });
        let owner = if shared.look(|record| record.private.owner.is_some()) { begun.owner } else { None };
        let end = watch(&shared, owner, begun.agent).await;
        finish(&shared, end, tasks).await
    }

    /// Brings the sandbox to where it can be called ready, and starts what serves it.
    async fn begin(&mut self, pipes: &Pipes, tasks: &mut JoinSet<()>) -> Result<Begun> {
        let shared = &self.shared;
        let fail_setup = |cause: std::io::Error| io_error("create", "the shim", cause);
        let agent = Watched::of(shared.agent()).map_err(fail_setup)?;
        // While the agent starts; it is served once there is something to serve.
        let listener = serve::listen(&shared.home, &shared.folder)?;
        let mut owner = None;
        match &mut self.beginning {
            Beginning::New(pipe, wish, occasion) => {
                let pipe =
                    rustix::io::fcntl_dupfd_cloexec(&*pipe, 3).map_err(|cause| fail_setup(cause.into()))?;
                let keeping = log::keep(Arc::clone(shared), pipe);
                tasks.spawn(async move {
                    // Without its log an agent runs as well.
                    let _ = keeping.await;
                });
                let watched = pipes.owner().map_err(fail_setup)?;
                // Before anything of the caller's runs: the main command may be the first to ask for a name, or to dial an address.
                let has_gateway = wish.network.is_some();
                if let Some(network) = wish.network.take() {
                    egress::start(shared, network).await?;
                }
                wish.configuration.take().map_or(Ok(()), Configuration::tell)?;
                await_ready(shared, &agent.end, &watched).await?;
                if shared.look(|record| record.main.is_some()) {
                    main_command::await_start(shared).await?;
                }
                if *occasion == Occasion::Start {
                    ports::bring_back(shared)?;
                }
                let listeners = std::mem::take(&mut wish.ports);
                let chosen = listeners.iter().filter(|listener| listener.is_chosen());
                let chosen: Vec<u16> = chosen.map(Listener::guest).collect();
                for published in listeners {
                    shared.ports.serve(shared, published)?;
                }
                attend(shared, listener, tasks);
                if let Some(order) = wish.ready.take() {
                    await_command(shared, &order, *occasion, &agent.end, &watched).await?;
                }
                owner = Some(watched);
                let ready = now();
                let deadline = match occasion {
                    Occasion::Creation => create::deadline(wish.lifetime_ms, ready)?,
                    Occasion::Start => shared.look(|record| record.deadline_from(ready)),
                };
                let published = shared.ports.list();
                let gateway = has_gateway.then(|| egress::state(shared));
                shared
                    .update(|record| {
                        record.ports = published;
                        if *occasion == Occasion::Creation {
                            record.private.chosen_ports = chosen;
                        }
                        record.state = State::Running;
                        record.started_at = Some(ready);
                        record.deadline = deadline;
                        record.egress.gateway = gateway;
                    })
                    .map_err(|cause| io_error("create", "`record.json`", cause))?;
            }
            Beginning::Adopted(network) => {
                if let Some(network) = network.take() {
                    egress::start(shared, network).await?;
                    egress::mark(shared);
                }
                if shared.look(|record| record.state == State::Sleeping) {
                    shared.ports.sleep();
                }
                ports::bring_back(shared)?;
                attend(shared, listener, tasks);
            }
        }
        Ok(Begun { agent, owner })
    }

    /// Takes back what was done, and tells the caller.
    fn give_up(&self, error: sandbar_core::Error, pipes: &mut Pipes) -> sandbar_core::Error {
        let shared = &self.shared;
        let error = match &self.beginning {
            // A sandbox that could not be adopted runs on as it did.
            Beginning::Adopted(_) => error,
            Beginning::New(_, _, Occasion::Start) => match start::stop_again(shared, &error) {
                Ok(()) => error,
                Err(left) => error.with_left_behind(left.to_string()),
            },
            Beginning::New(_, _, Occasion::Creation) => {
                let record = Some(shared.record());
                let groups = Groups::Known(shared.cgroup.as_ref());
                match teardown::tear_down(
                    &shared.home,
                    &shared.folder,
                    record,
                    &shared.lock,
                    groups,
                    Ending::default(),
                ) {
                    Ok(()) => {
                        shared.tell_ended(&Ok(()));
                        error
                    }
                    Err(left) => {
                        left.left_behind().iter().cloned().fold(error, sandbar_core::Error::with_left_behind)
                    }
                }
            }
        };
        pipes.report(&Report::Failed(ErrorForm::from(&error)));
        error
    }
}

struct Begun {
    agent: Watched,
    owner: Option<Receiver>,
}

/// An agent whose end is waited for.
struct Watched {
    agent: Arc<OwnedFd>,
    end: AsyncFd<OwnedFd>,
}

impl Watched {
    fn of(agent: Arc<OwnedFd>) -> std::io::Result<Self> {
        let end = descriptor::watch(rustix::io::fcntl_dupfd_cloexec(&*agent, 3)?)?;
        Ok(Self { agent, end })
    }

    /// Answers at the end of the sandbox' agent; an end of one that has a successor is none.
    async fn ended(&mut self, shared: &Shared) {
        loop {
            let _ = self.end.readable().await;
            let now = shared.agent();
            if Arc::ptr_eq(&now, &self.agent) {
                return;
            }
            match Self::of(now) {
                Ok(next) => *self = next,
                // Out of descriptors, most likely.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

/// Waits until the agent answers, ends, or is not wanted any more.
async fn await_ready(shared: &Shared, agent: &AsyncFd<OwnedFd>, owner: &Receiver) -> Result<()> {
    let died = || {
        let words = log::last_words(&shared.folder).map(|words| format!(": {words}")).unwrap_or_default();
        fail(ErrorKind::Unexpected, "create", format!("the agent ended at its start{words}"))
    };
    tokio::select! {
        answered = timeout(READY, health(shared)) => match answered {
            Ok(Ok(())) => Ok(()),
            Ok(Err(cause)) if is_dead(agent) => { drop(cause); Err(died()) }
            Ok(Err(cause)) => Err(io_error("create", "the agent's first answer", cause)),
            Err(_) => {
                let message = format!("the agent did not answer within {} s", READY.as_secs());
                Err(fail(ErrorKind::Timeout, "create", message))
            }
        },
        _ = agent.readable() => Err(died()),
        () = closed(Some(owner)) => Err(fail(ErrorKind::Conflict, "create", "the caller is gone")),
    }
}

/// Starts what serves the sandbox and watches over it.
fn attend(shared: &Arc<Shared>, listener: UnixListener, tasks: &mut JoinSet<()>) {
    tasks.spawn(serve::serve(Arc::clone(shared), listener));
    tasks.spawn(limits::watch(Arc::clone(shared)));
    tasks.spawn(egress::watch(Arc::clone(shared)));
    if shared.look(|record| record.main.is_some()) {
        tasks.spawn(main_command::follow(Arc::clone(shared)));
    }
}

/// Waits until the command succeeds that says when it is ready, and no longer than anybody wants it.
async fn await_command(
    shared: &Arc<Shared>,
    order: &ReadyOrder,
    occasion: Occasion,
    agent: &AsyncFd<OwnedFd>,
    owner: &Receiver,
) -> Result<()> {
    let operation = match occasion {
        Occasion::Creation => "create",
        Occasion::Start => "resume",
    };
    let given_up = |why: &str| Err(fail(ErrorKind::Conflict, operation, why));
    tokio::select! {
        done = ready::wait(shared, order, operation) => done,
        _ = agent.readable() => given_up("its first process ended before it was ready"),
        () = closed(Some(owner)) => given_up("the caller is gone"),
        () = shared.ending.notified() => given_up("it was destroyed before it was ready"),
    }
}

/// Asks the agent whether it is ready. It answers as soon as it accepts, so there is nothing to repeat.
pub(super) async fn health(shared: &Shared) -> std::io::Result<()> {
    let mut stream = Unix::connect(&shared.folder.socket(AGENT_SOCKET), Late::Refused).await?;
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: sandbar\r\nConnection: close\r\n\r\n").await?;
    let mut answer = Vec::new();
    (&mut stream).take(1024).read_to_end(&mut answer).await?;
    if answer.starts_with(b"HTTP/1.1 204") {
        return Ok(());
    }
    let line: String =
        String::from_utf8_lossy(&answer).chars().take_while(|c| !c.is_control()).take(100).collect();
    Err(std::io::Error::other(format!("`{line}` instead of status 204")))
}

fn is_dead(agent: &AsyncFd<OwnedFd>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut watched = [PollFd::new(agent.get_ref(), PollFlags::IN)];
    poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 50_000_000 })).is_ok_and(|count| count > 0)
}

/// Ends when the other end of the pipe does; never without one.
async fn closed(owner: Option<&Receiver>) {
    let Some(owner) = owner else { return std::future::pending().await };
    let mut byte = [0; 1];
    loop {
        if owner.readable().await.is_err() {
            return;
        }
        match owner.try_read(&mut byte) {
            Err(cause) if cause.kind() == std::io::ErrorKind::WouldBlock => {}
            Ok(1..) => {}
            Ok(0) | Err(_) => return,
        }
    }
}

/// Waits for a reason to end. A deadline at which it is to sleep is met here, and none.
async fn watch(shared: &Arc<Shared>, owner: Option<Receiver>, mut agent: Watched) -> End {
    loop {
        let nap = match shared.deadline() {
            Some(deadline) => match Duration::try_from(deadline.duration_since(jiff::Timestamp::now())) {
                Ok(left) if !left.is_zero() => left.min(LONGEST_NAP),
                _ if shared.look(|record| record.on_deadline == DeadlineAction::Pause) => {
                    match sleep::hibernate(shared, sleep::Occasion::Deadline).await {
                        // Asleep, it has no other.
                        Ok(_) => LONGEST_NAP,
                        Err(error) => {
                            log::say(&format_args!("it does not sleep at its deadline: {error}"));
                            PAUSE_AGAIN
                        }
                    }
                }
                _ => return End::Deadline,
            },
            None => LONGEST_NAP,
        };
        tokio::select! {
            biased;
            () = agent.ended(shared) => return End::AgentGone,
            () = shared.ending.notified() => return End::Asked,
            () = closed(owner.as_ref()) => return End::OwnerGone,
            () = shared.rescheduled.notified() => {}
            () = sleep_until(Instant::now() + nap) => {}
        }
    }
}

impl End {
    fn cause(&self, shared: &Shared) -> EndCause {
        match self {
            Self::Asked => EndCause::Destroyed,
            Self::Deadline => EndCause::Deadline,
            Self::OwnerGone => EndCause::OwnerGone,
            // Whoever ends it may end the agent first, and that acts on the deadline, too.
            Self::AgentGone if shared.is_asked_to_end() => EndCause::Destroyed,
            Self::AgentGone if shared.look(StoredRecord::is_expired) => EndCause::Deadline,
            Self::AgentGone => EndCause::Died,
        }
    }
}

/// Bytes of disk that the sandbox holds: counted once more where it lived long enough for that to be worth the time.
async fn last_count(shared: &Arc<Shared>) -> Option<u64> {
    let lived = shared.look(|record| record.started_at).map(|at| now().duration_since(at).unsigned_abs());
    if lived.is_some_and(|lived| lived >= WORTH_A_COUNT)
        && let Ok(Ok(usage)) = timeout(LAST_COUNT, usage::count(shared, usage::What::Disk)).await
    {
        return Some(usage.disk_bytes);
    }
    hold(&shared.counters).disk_bytes
}

/// Destroys the sandbox, or writes down that it stopped.
async fn finish(shared: &Arc<Shared>, end: End, mut tasks: JoinSet<()>) -> Result<()> {
    let keeps = matches!(end, End::AgentGone)
        && !shared.is_asked_to_end()
        && shared.look(|record| record.private.owner.is_none() && !record.is_expired());
    shared.egress.stop().await;
    let ending = Ending {
        cause: Some(end.cause(shared)),
        disk_bytes: last_count(shared).await,
        layers: shared.untouched_layers,
        ..Ending::default()
    };
    let told = AuditedEnd::begin(Some(&shared.record()), Role::Guard, ending.cause);
    let outcome = if keeps {
        stop(shared, ending)
    } else {
        let groups = Groups::Known(shared.cgroup.as_ref());
        teardown::tear_down(&shared.home, &shared.folder, Some(shared.record()), &shared.lock, groups, ending)
    };
    let reason = if keeps { shared.look(|record| record.reason.clone()) } else { None };
    told.over(&outcome, if keeps { Left::Files } else { Left::Nothing }, reason.as_deref());
    reap(shared);
    shared.tell_ended(&outcome);
    // The answers are written by tasks; those that wait for other things are of no use any more.
    let _ = timeout(LAST_WORDS, shared.all_answered()).await;
    tasks.abort_all();
    outcome
}

/// The agent ended by itself: the files stay.
fn stop(shared: &Shared, ending: Ending) -> Result<()> {
    let how = reap(shared);
    limits::note(shared);
    teardown::write_usage(&shared.home, &shared.record(), shared.cgroup.as_ref(), ending);
    if let Some(group) = &shared.cgroup {
        group.remove(EMPTY).map_err(|cause| engine("stop", cause))?;
    }
    let reason = format!("its first process {}", how.unwrap_or_else(|| "ended".to_owned()));
    shared
        .update(|record| {
            record.state = State::Stopped;
            record.reason = Some(reason);
            record.private.asleep = None;
        })
        .map_err(|cause| io_error("stop", "`record.json`", cause))
}

/// Takes note of the agent's end, where it is a child; the text says how it ended.
fn reap(shared: &Shared) -> Option<String> {
    use std::os::fd::AsFd;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    match waitid(WaitId::PidFd(shared.agent().as_fd()), options) {
        Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Some(format!("exited with code {code}")),
            (None, Some(signal)) => Some(format!("was ended by signal {signal}")),
            (None, None) => None,
        },
        // Of an adopted sandbox the agent is somebody else's child.
        Ok(None) | Err(_) => None,
    }
}

/// The deadline as far as it is the agent's: it acts on one by ending everything, so it knows of none at which the sandbox is to sleep.
pub(super) fn backstop(shared: &Shared, deadline: Option<jiff::Timestamp>) -> Option<jiff::Timestamp> {
    deadline.filter(|_| shared.look(|record| record.on_deadline == DeadlineAction::Destroy))
}

/// Tells the agent when to end by itself, should the shim not be there.
pub(super) async fn tell_deadline(shared: &Shared, deadline: Option<jiff::Timestamp>) -> std::io::Result<()> {
    let unix_ms =
        deadline.map(|deadline| deadline.as_millisecond().saturating_add(super::agent::BACKSTOP_MS));
    match ctl::ask(&shared.folder, &ctl::Op::Deadline { unix_ms }, None).await {
        Ok(ctl::Outcome::Done(_)) => Ok(()),
        Ok(ctl::Outcome::No(why)) => Err(std::io::Error::other(why)),
        Err(failure) => Err(std::io::Error::other(failure.to_string())),
    }
}
