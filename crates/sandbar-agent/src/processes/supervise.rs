use std::os::fd::OwnedFd;
use std::rc::Rc;

use sandbar_engine::process::Event;
use sandbar_wire::envd::{Code, RpcError, Signal};
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::end::end_event;
use super::start::next_event;
use super::{Process, Queue};
use crate::state::State;

/// Follows a command to its end: enforces its deadline, delivers `end` after its output, and keeps its tree known for
/// as long as anything in it lives.
pub(super) async fn supervise(
    state: Rc<State>,
    process: Rc<Process>,
    report: AsyncFd<OwnedFd>,
    pumps: Vec<oneshot::Receiver<()>>,
    deadline: Option<(Instant, Rc<Queue>)>,
) {
    let (status, timed_out) = exit_status(&process, &report, deadline.as_ref().map(|(at, _)| *at)).await;
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
    drop(process);
    if status.is_some() {
        // Descendants may live on; the stub ends with the last of them.
        while !matches!(next_event(&report).await, Ok(Event::Gone) | Err(_)) {}
    }
    state.registry.remove_tree(&tree);
}

/// Waits for the started process. No status where its stub vanished.
async fn exit_status(
    process: &Process,
    report: &AsyncFd<OwnedFd>,
    mut deadline: Option<Instant>,
) -> (Option<i32>, bool) {
    let mut timed_out = false;
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
                Ok(Event::Exited(status)) => return (Some(status), timed_out),
                Ok(Event::Gone) | Err(_) => return (None, timed_out),
                Ok(Event::Started(_) | Event::Failed(_)) => {}
            },
            () = passed => {
                timed_out = true;
                deadline = None;
                // An error means that nothing was left to kill or that the table can't be read; the report tells.
                let _ = process.signal(Signal::KILL).await;
            }
        }
    }
}
