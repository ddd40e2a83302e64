use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use sandbar_engine::process::{Event, Reach, Tree, kill_orphans};
use sandbar_wire::envd::{Code, RpcError, Signal};
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

use super::end::end_event;
use super::start::next_event;
use super::{Process, Queue};
use crate::log::log;
use crate::state::State;

/// Pause before what was killed is killed again: programs that fork faster than they are found need a second round,
/// and so does whatever was not there yet.
const KILL_PAUSE: Duration = Duration::from_millis(250);
/// How often; after that the outcome is unknown.
const MAX_KILLS: u32 = 40;
/// How long a stub whose pipe is closed may take to end; some microseconds, unless the machine is overloaded.
const STUB_END: Duration = Duration::from_millis(100);

/// Follows a command to its end: enforces its deadline, delivers `end` after its output, and keeps its tree known for
/// as long as anything in it lives.
pub(super) async fn supervise(
    state: Rc<State>,
    process: Rc<Process>,
    report: AsyncFd<OwnedFd>,
    pumps: Vec<oneshot::Receiver<()>>,
    deadline: Option<(Instant, Rc<Queue>)>,
) {
    let (status, timed_out) =
        exit_status(&state, &process, &report, deadline.as_ref().map(|(at, _)| *at)).await;
    process.set_exited();
    for drained in pumps {
        let _ = drained.await;
    }
    let end = end_event(status, timed_out);
    if timed_out && let Some((_, starter)) = &deadline {
        starter.finish(Some(&RpcError::new(Code::DeadlineExceeded, "the command's time limit passed")));
    }
    state.registry.retire(&process, end.clone());
    process.deliver_end(&end);
    let tree = process.tree.clone();
    let is_killed = process.hurried.get();
    drop(process);
    if is_killed {
        make_sure(&tree, &report).await;
    }
    if status.is_some() {
        // Descendants may live on; the stub ends with the last of them.
        while !matches!(next_event(&report).await, Ok(Event::Gone) | Err(_)) {}
    }
    state.registry.remove_tree(&tree);
}

/// Kills again until nothing of a tree that was killed is left.
async fn make_sure(tree: &Tree, report: &AsyncFd<OwnedFd>) {
    for _ in 0..MAX_KILLS {
        if !tree.is_alive()
            || matches!(timeout(KILL_PAUSE, next_event(report)).await, Ok(Ok(Event::Gone) | Err(_)))
        {
            return;
        }
        let _ = tree.signal(Signal::KILL.number(), Reach::Everything);
    }
}

/// Waits for the started process. No status where its stub vanished.
async fn exit_status(
    state: &State,
    process: &Process,
    report: &AsyncFd<OwnedFd>,
    mut deadline: Option<Instant>,
) -> (Option<i32>, bool) {
    let mut kills = 0;
    loop {
        let passed = async {
            match deadline {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = next_event(report) => match event {
                Ok(Event::Exited(status)) => return (Some(status), kills > 0),
                Ok(Event::Gone) | Err(_) => {
                    end_orphans(state, &process.tree);
                    return (None, kills > 0);
                }
                Ok(Event::Started(_) | Event::Failed(_)) => {}
            },
            () = passed => {
                if kills == MAX_KILLS {
                    return (None, true);
                }
                kills += 1;
                deadline = Some(Instant::now() + KILL_PAUSE);
                // An error means that nothing was left to kill or that the table can't be read; the report tells.
                let _ = process.signal(Signal::KILL);
            }
        }
    }
}

/// Whoever kills a stub takes its tree away from it, and would have a process that no limit in time ends.
pub(crate) fn end_orphans(state: &State, lost: &Tree) {
    if std::process::id() == 1 {
        lost.wait_end(STUB_END);
        let mut stubs: Vec<i32> = state.registry.trees().iter().map(|tree| tree.stub()).collect();
        stubs.retain(|stub| *stub != lost.stub());
        if let Err(error) = kill_orphans(&stubs) {
            log(format_args!("end what a killed command left: {error}"));
        }
    }
}
