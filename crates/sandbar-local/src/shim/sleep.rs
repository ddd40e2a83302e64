//! Putting a sandbox to sleep: all its processes stop where they are, and go on from there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sandbar_core::{ErrorKind, Result, State};

use super::processes;
use super::protocol::Slept;
use super::shared::Shared;
use super::{egress, guard};
use crate::ask::PATIENCE;
use crate::error::{engine, fail, io_error};
use crate::home::{AgentMark, Asleep, Pending};

const SLEEP: &str = "pause";
const WAKE: &str = "resume";

/// How long all processes may take to stop or to go on; one that is in the middle of a system call stops after it.
const STOP: Duration = Duration::from_secs(10);
/// How long the agent may take to answer once it goes on.
const ANSWER: Duration = Duration::from_secs(20);
/// Processes whose identity is remembered, to see after the sleep that they are the same: the oldest ones.
const MARKS: usize = 64;
/// Between two looks whether all have stopped.
const LOOK: Duration = Duration::from_millis(1);

/// How long a sleep at a deadline waits for a copy.
const AT_DEADLINE: Duration = Duration::from_secs(1);

/// By what it sleeps.
const FREEZE: &str = "freeze";
const STOPS: &str = "stop";

/// Why it goes to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// Somebody asked for it.
    Asked,
    /// Its deadline, which is met by that.
    Deadline,
}

impl Occasion {
    /// How long it waits for a copy. At a deadline whoever asks has other things to look after, and asks again.
    fn patience(self) -> Duration {
        match self {
            Self::Asked => PATIENCE,
            Self::Deadline => AT_DEADLINE,
        }
    }
}

/// Stops all processes. After an error all run as before.
pub(super) async fn hibernate(shared: &Arc<Shared>, occasion: Occasion) -> Result<Slept> {
    let _turn = shared.turn(occasion.patience(), SLEEP).await?;
    if let Some(asleep) = shared.look(|record| record.private.asleep.clone()) {
        if occasion == Occasion::Deadline {
            let met = shared.update(|record| record.deadline = None);
            met.map_err(|cause| io_error(SLEEP, "`record.json`", cause))?;
        }
        return Ok(Slept::already("it slept already", &asleep.mechanism));
    }
    // From here on nobody is let in: what comes while it sleeps would wait without an end.
    let (mechanism, stopped) = stop(shared).await?;
    let at = crate::home::now();
    // Those that stand still, not those of before: one that ended by itself until then is not lost by the sleep.
    let processes = marks(shared, mechanism);
    let asleep = Asleep { mechanism: mechanism.to_owned(), processes, stopped: stopped.clone(), at };
    let preserved = all_live(&asleep.processes);
    let noted = shared.update(|record| {
        record.state = State::Sleeping;
        record.private.asleep = Some(asleep);
        if occasion == Occasion::Deadline {
            record.deadline = None;
        }
    });
    if let Err(cause) = noted {
        go_on(shared, mechanism, &stopped)?;
        return Err(io_error(SLEEP, "`record.json`", cause));
    }
    shared.ports.sleep();
    let group = Arc::clone(shared);
    // Aside: what sleeps can wait for its memory, and who asked for the sleep need not.
    drop(tokio::task::spawn_blocking(move || group.cgroup.as_ref().map(sandbar_engine::Cgroup::reclaim)));
    Ok(Slept { processes_preserved: preserved, mechanism: mechanism.to_owned(), detail: None })
}

/// Lets all processes go on. Whether they are the same was looked at before one of them could end by itself, and that the first of them, with which all
/// others would end, lives on after that.
pub(super) async fn resume(shared: &Arc<Shared>) -> Result<Slept> {
    let _turn = shared.turn(PATIENCE, WAKE).await?;
    let Some(asleep) = shared.look(|record| record.private.asleep.clone()) else {
        // A first process that was killed just now is still there, and does not answer any more.
        answers(shared).await?;
        return Ok(Slept::already("it ran already", "none"));
    };
    // While nothing moves: one that ends by itself right after the wake was not lost by the sleep.
    let preserved = all_live(&asleep.processes);
    go_on(shared, &asleep.mechanism, &asleep.stopped)?;
    // Not before it answers: who is told that it runs uses it at once.
    if let Err(error) = answers(shared).await {
        // Asleep again: what does not answer is not said to run.
        put_back(shared).await;
        return Err(error);
    }
    if let Err(error) = catch_up(shared).await {
        put_back(shared).await;
        return Err(error);
    }
    let deadline = shared.look(|record| record.deadline_from(crate::home::now()));
    let noted = shared.update(|record| {
        record.state = State::Running;
        record.private.asleep = None;
        record.deadline = deadline;
    });
    if let Err(cause) = noted {
        put_back(shared).await;
        return Err(io_error(WAKE, "`record.json`", cause));
    }
    shared.ports.wake();
    shared.rescheduled.notify_one();
    let detail = (!preserved).then(|| "not all processes from before the sleep are there".to_owned());
    Ok(Slept { processes_preserved: preserved, mechanism: asleep.mechanism, detail })
}

/// Whether its agent answers.
async fn answers(shared: &Shared) -> Result<()> {
    let answered = tokio::time::timeout(ANSWER, guard::health(shared)).await;
    let answered = answered.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
    answered.map_err(|cause| {
        fail(ErrorKind::Unavailable, WAKE, format!("the agent does not answer: {cause}"))
            .with_hint("try again, or destroy the sandbox")
    })
}

/// What could not be done while it slept: its agent takes the deadline that is in force by now, and one that was taken over in its sleep gets its
/// gateway, whose sockets are with the agent.
async fn catch_up(shared: &Arc<Shared>) -> Result<()> {
    let told = guard::tell_deadline(shared, guard::backstop(shared, shared.deadline())).await;
    told.map_err(|cause| {
        fail(ErrorKind::Unavailable, WAKE, format!("the agent does not take the deadline: {cause}"))
    })?;
    egress::start_again(shared).await
}

/// Asleep again after a wake that did not come off. Its record says that it sleeps; what can't be stopped is destroyed by whoever needs it gone.
async fn put_back(shared: &Shared) {
    if let Err(error) = stop(shared).await {
        super::log::say(&format_args!("it does not go back to sleep: {error}"));
    }
}

/// How [`stop`] would do it now, noted before it does.
pub(super) fn how(shared: &Shared) -> Asleep {
    let freezes = shared.cgroup.as_ref().is_some_and(sandbar_engine::Cgroup::can_freeze);
    let stopped = if freezes {
        Vec::new()
    } else {
        marks_of(processes::all(shared).into_iter().filter(|pid| processes::is_stopped(*pid)))
    };
    let mechanism = if freezes { FREEZE } else { STOPS }.to_owned();
    Asleep { mechanism, processes: Vec::new(), stopped, at: crate::home::now() }
}

/// Lets a sandbox go on that stood still to be copied, whoever began that.
pub(super) fn recover(shared: &Shared) -> Result<()> {
    let pending = shared.look(|record| record.private.pending.clone());
    let Some(Pending::Copying(how)) = pending else { return Ok(()) };
    go_on(shared, &how.mechanism, &how.stopped)?;
    shared
        .update(|record| record.private.pending = None)
        .map_err(|cause| io_error(WAKE, "`record.json`", cause))
}

/// Stops everything inside; the answer is by what, and what stood still before.
pub(super) async fn stop(shared: &Shared) -> Result<(&'static str, Vec<AgentMark>)> {
    if let Some(group) = shared.cgroup.as_ref().filter(|group| group.can_freeze()) {
        return match group.freeze(STOP) {
            Ok(()) => Ok((FREEZE, Vec::new())),
            Err(cause) => {
                let _ = group.thaw(STOP);
                Err(engine(SLEEP, cause))
            }
        };
    }
    let stopped = marks_of(processes::all(shared).into_iter().filter(|pid| processes::is_stopped(*pid)));
    match stop_each(shared).await {
        Ok(()) => Ok((STOPS, stopped)),
        Err(error) => {
            continue_each(shared, &stopped);
            Err(error)
        }
    }
}

/// Lets it go on, by what it was stopped with.
fn go_on(shared: &Shared, mechanism: &str, stopped: &[AgentMark]) -> Result<()> {
    if mechanism == STOPS {
        continue_each(shared, stopped);
        return Ok(());
    }
    let group = shared.cgroup.as_ref().ok_or_else(|| {
        fail(ErrorKind::Unexpected, WAKE, "the control group that it was frozen with is gone")
            .with_hint("destroy the sandbox")
    })?;
    group.thaw(STOP).map_err(|cause| engine(WAKE, cause))
}

/// Without a freezer: a signal to each, until a look finds all of them stopped. A process can't make another one while the signal waits for it, so
/// each round leaves fewer.
async fn stop_each(shared: &Shared) -> Result<()> {
    let end = Instant::now() + STOP;
    // One that waits in the kernel with the signal before it goes no further than that: most often it waits for a child of `vfork` that stopped.
    let mut told = BTreeSet::new();
    loop {
        let pids = processes::all(shared);
        let goes_on = |pid: &rustix::process::Pid| {
            let was_told = told.contains(&pid.as_raw_nonzero());
            let stands = processes::is_stopped(*pid) || (was_told && processes::waits_in_kernel(*pid));
            !stands
        };
        let running: Vec<_> = pids.iter().copied().filter(goes_on).collect();
        if running.is_empty() && !pids.is_empty() {
            return Ok(());
        }
        for pid in running {
            signal(pid, Signal::STOP);
            told.insert(pid.as_raw_nonzero());
        }
        if Instant::now() >= end {
            return Err(fail(ErrorKind::Timeout, SLEEP, "not all processes stopped in time"));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// All but those that stood still before. The youngest first: a shell is not to find a child of its own stopped.
fn continue_each(shared: &Shared, stopped: &[AgentMark]) {
    let mut pids = processes::all(shared);
    pids.retain(|pid| !stopped.iter().any(|mark| mark.pid().ok().flatten() == Some(*pid)));
    pids.sort_by_key(|pid| std::cmp::Reverse(sandbar_engine::proc_id::start_time(*pid).ok().flatten()));
    for pid in pids {
        signal(pid, Signal::CONT);
    }
}

/// By a descriptor: a process that ended meanwhile is no other one.
fn signal(pid: rustix::process::Pid, signal: Signal) {
    if let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) {
        let _ = pidfd_send_signal(&pidfd, signal);
    }
}

/// Of those that live: one that ended and was not taken note of yet is no process that could go on.
/// Nor is one that got its signal on its way out.
fn marks(shared: &Shared, mechanism: &str) -> Vec<AgentMark> {
    let mut pids = processes::all(shared);
    if mechanism == STOPS {
        pids.retain(|pid| processes::is_stopped(*pid));
    }
    let mut marks = marks_of(pids.into_iter());
    marks.retain(|mark| mark.lives().unwrap_or(true));
    marks.truncate(MARKS);
    marks
}

fn marks_of(pids: impl Iterator<Item = rustix::process::Pid>) -> Vec<AgentMark> {
    pids.filter_map(|pid| AgentMark::of(pid).ok().flatten()).collect()
}

fn all_live(marks: &[AgentMark]) -> bool {
    !marks.is_empty() && marks.iter().all(|mark| mark.lives().unwrap_or(false))
}
