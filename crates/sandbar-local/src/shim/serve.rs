use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustix::net::SocketType;
use sandbar_core::{DeadlineAction, ErrorKind, Result, State};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::ports::Dialled;
use super::protocol::{MAX_LINE, OLDEST, Op, Reply, VERSION};
use super::shared::Shared;
use super::{SHIM_SOCKET, agent, egress, fork, guard, hold, main_command, ports, resize, sleep, usage};
use crate::ask::PATIENCE;
use crate::error::{ErrorForm, fail, io_error};
use crate::home::{Folder, Home};
use crate::store::Merged;

/// Connections served at once; more wait in the listener's queue.
const CONNECTIONS: usize = 128;
/// How long a connection may be silent before it is closed: callers ask at once and go away.
const SILENCE: Duration = Duration::from_secs(60);

/// Bytes of a tunnel that are passed on at once, each way: few calls where much is passed, and some megabytes where all that may be open are.
const PIECE: usize = 32 << 10;

/// How long the store is held for somebody who is told of a layer; to take it, too, takes no time. Shorter than others wait for the store.
const TAKEN_OVER: Duration = Duration::from_secs(10);

/// The listener of `shim.sock`, in place of one that an earlier shim left.
pub(super) fn listen(home: &Home, folder: &Folder) -> Result<UnixListener> {
    agent::listener(home, folder, SHIM_SOCKET, SocketType::STREAM)
        .map_err(std::io::Error::from)
        .and_then(|socket| UnixListener::from_std(socket.into()))
        .map_err(|cause| io_error("create", &format!("`{SHIM_SOCKET}`"), cause))
}

/// Serves `shim.sock` as long as the shim lives.
pub(super) async fn serve(shared: Arc<Shared>, listener: UnixListener) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    // The other side went away: there is nobody to tell.
                    let _ = converse(&shared, stream, permit).await;
                });
            }
            // Out of descriptors, most likely: those in use are given back sooner or later.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn converse(
    shared: &Arc<Shared>,
    stream: UnixStream,
    permit: tokio::sync::OwnedSemaphorePermit,
) -> std::io::Result<()> {
    let mut stream = BufStream::with_capacity(1024, 1024, stream);
    loop {
        let mut line = Vec::new();
        let limit = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
        let mut limited = (&mut stream).take(limit);
        match timeout(SILENCE, limited.read_until(b'\n', &mut line)).await {
            Ok(Ok(0)) | Err(_) => return Ok(()),
            Ok(got) => got?,
        };
        let request = match parse(&line) {
            Ok(op) => op,
            Err(reply) => {
                send(&mut stream, &reply).await?;
                return Ok(());
            }
        };
        match request {
            Op::Dial { port } => {
                drop(permit);
                return tunnel(shared, stream, port).await;
            }
            Op::Hold => {
                drop(permit);
                return hold::hold(shared, stream).await;
            }
            Op::Snapshot { merged } => {
                drop(permit);
                return snapshot(shared, stream, merged.as_ref()).await;
            }
            Op::Destroy => {
                let _answering = shared.answer();
                let reply = match shared.ask_end().await {
                    Ok(Ok(())) => Reply::Destroyed,
                    Ok(Err(error)) => Reply::Failed(error),
                    // Another one asked first: the caller sees the end of the connection, and looks again.
                    Err(_) => return Ok(()),
                };
                return send(&mut stream, &reply).await;
            }
            op => {
                let reply =
                    answer(shared, op).await.unwrap_or_else(|error| Reply::Failed(ErrorForm::from(&error)));
                send(&mut stream, &reply).await?;
            }
        }
    }
}

/// Makes a layer for a copy, and keeps it from going until the other side holds the store itself: then that ends the connection.
async fn snapshot(
    shared: &Arc<Shared>,
    mut stream: BufStream<UnixStream>,
    merged: Option<&Merged>,
) -> std::io::Result<()> {
    match fork::snapshot(shared, merged).await {
        Ok((snapped, _store)) => {
            send(&mut stream, &Reply::Snapshot(snapped)).await?;
            let _ = timeout(TAKEN_OVER, stream.read(&mut [0])).await;
            Ok(())
        }
        Err(error) => send(&mut stream, &Reply::Failed(ErrorForm::from(&error))).await,
    }
}

async fn answer(shared: &Arc<Shared>, op: Op) -> Result<Reply> {
    match op {
        Op::SetDeadline { deadline, extend_only } => {
            set_deadline(shared, deadline, extend_only).await.map(Reply::Deadline)
        }
        Op::Stats => Ok(Reply::Stats(usage::measure(shared).await)),
        Op::SetResources { limits } => resize::resize(shared, limits).await.map(|()| Reply::Resized),
        Op::Main => {
            if shared.look(|record| record.main.is_some()) {
                main_command::catch_up(shared).await?;
            }
            Ok(Reply::Main(shared.look(|record| record.main.clone())))
        }
        Op::Hibernate => sleep::hibernate(shared, sleep::Occasion::Asked).await.map(Reply::Slept),
        Op::Resume => sleep::resume(shared).await.map(Reply::Slept),
        Op::SetDeadlineAction { action } => {
            set_deadline_action(shared, action).await.map(|()| Reply::ActionSet)
        }
        Op::SetPolicy { policy } => egress::set_policy(shared, policy).await.map(|()| Reply::PolicySet),
        Op::Egress => egress::read(shared).await.map(Reply::Egress),
        Op::Explain { destination, port, protocol } => {
            egress::explain(shared, &destination, port, protocol).map(Reply::Explained)
        }
        Op::Publish { port } => ports::publish(shared, port.into()).map(Reply::Published),
        Op::PublishAt { at } => ports::publish(shared, at).map(Reply::Published),
        Op::Unpublish { port } => {
            ports::unpublish(shared, port).map(|was_published| Reply::Unpublished { was_published })
        }
        // The others end the conversation and were dealt with before.
        Op::Hello | Op::Destroy | Op::Dial { .. } | Op::Hold | Op::Snapshot { .. } => {
            Ok(Reply::Hello { version: env!("CARGO_PKG_VERSION").to_owned() })
        }
    }
}

/// Changes the deadline; the answer is the one in force.
async fn set_deadline(
    shared: &Shared,
    wanted: Option<Timestamp>,
    extend_only: bool,
) -> Result<Option<Timestamp>> {
    // Not while its agent changes: the next one would have the deadline of before.
    let _turn = shared.turn(PATIENCE, "set deadline").await?;
    let now = shared.deadline();
    let next = match (now, wanted) {
        // No deadline is later than any.
        (None, _) if extend_only => None,
        (Some(now), Some(wanted)) if extend_only => Some(now.max(wanted)),
        (_, wanted) => wanted,
    };
    if next != now {
        // A later deadline has to reach the agent before it counts, an earlier one counts in any case.
        // Asleep the agent can't be told; it is when it wakes.
        let is_asleep = shared.look(|record| record.state == State::Sleeping);
        let told = if is_asleep {
            Ok(())
        } else {
            guard::tell_deadline(shared, guard::backstop(shared, next)).await
        };
        let later = next.is_none_or(|next| now.is_some_and(|now| next > now));
        if let (Err(cause), true) = (told, later) {
            return Err(fail(
                ErrorKind::Unavailable,
                "set deadline",
                format!("the agent keeps the old one: {cause}"),
            ));
        }
        shared
            .update(|record| {
                record.deadline = next;
                // What ends it at once is no time that it was given.
                if next.is_none_or(|next| next > crate::home::now()) {
                    record.private.lifetime_ms = next.map(|next| left(next, crate::home::now()));
                }
            })
            .map_err(|cause| io_error("set deadline", "`record.json`", cause))?;
        shared.rescheduled.notify_one();
    }
    Ok(next)
}

/// Milliseconds from `now` to a deadline, at least one.
fn left(deadline: Timestamp, now: Timestamp) -> u64 {
    u64::try_from(deadline.duration_since(now).as_millis()).unwrap_or(0).max(1)
}

/// Changes what happens at the deadline.
async fn set_deadline_action(shared: &Shared, action: DeadlineAction) -> Result<()> {
    const OPERATION: &str = "set deadline action";
    let before = shared.look(|record| record.on_deadline);
    let note = |action| {
        shared
            .update(|record| record.on_deadline = action)
            .map_err(|cause| io_error(OPERATION, "`record.json`", cause))
    };
    note(action)?;
    // The agent acts on a deadline by ending everything, so it knows of none that is to be slept through. Asleep it can't be told; it is when it wakes.
    let is_asleep = shared.look(|record| record.state == State::Sleeping);
    if !is_asleep
        && let Err(cause) = guard::tell_deadline(shared, guard::backstop(shared, shared.deadline())).await
    {
        note(before)?;
        return Err(fail(ErrorKind::Unavailable, OPERATION, format!("the agent keeps the old one: {cause}")));
    }
    shared.rescheduled.notify_one();
    Ok(())
}

/// Makes the rest of a connection one to a port inside.
async fn tunnel(shared: &Arc<Shared>, mut stream: BufStream<UnixStream>, port: u16) -> std::io::Result<()> {
    match ports::dial(shared, port).await {
        Ok(Dialled::Connection(mut inside)) => {
            send(&mut stream, &Reply::Dialled).await?;
            tokio::io::copy_bidirectional_with_sizes(&mut stream, &mut inside, PIECE, PIECE).await?;
            Ok(())
        }
        Ok(Dialled::Refused) => send(&mut stream, &Reply::Refused).await,
        Err(error) => send(&mut stream, &Reply::Failed(ErrorForm::from(&error))).await,
    }
}

/// Takes a request apart. The version comes first: another one may have other operations.
fn parse(line: &[u8]) -> std::result::Result<Op, Box<Reply>> {
    #[derive(Deserialize)]
    struct Versioned {
        v: u32,
    }
    let broken =
        |why: String| Box::new(Reply::Failed(ErrorForm::from(&fail(ErrorKind::Protocol, "ask shim", why))));
    match serde_json::from_slice::<Versioned>(line) {
        Ok(Versioned { v: OLDEST..=VERSION }) => {}
        Ok(_) => return Err(Box::new(Reply::Versions((OLDEST..=VERSION).collect()))),
        Err(cause) => return Err(broken(format!("the request is not of the protocol: {cause}"))),
    }
    match serde_json::from_slice::<super::protocol::Request>(line) {
        Ok(request) => Ok(request.op),
        Err(cause) => Err(broken(format!("the request is not known: {cause}"))),
    }
}

pub(super) async fn send(stream: &mut BufStream<UnixStream>, reply: &Reply) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_told_ours_and_nonsense_is_refused() {
        let refusal = |line: &[u8]| *parse(line).expect_err("refused");
        assert!(
            matches!(refusal(br#"{"v":5,"op":"levitate"}"#), Reply::Versions(known) if known == [1, 2, 3, 4])
        );
        assert!(matches!(refusal(br#"{"v":1,"op":"levitate"}"#), Reply::Failed(_)));
        assert!(matches!(refusal(b"\xff\n"), Reply::Failed(_)));
        assert!(matches!(parse(br#"{"v":1,"op":"stats"}"#), Ok(Op::Stats)));
    }
}
