use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use sandbar_wire::envd::{Channel, data_frame};
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::Process;

/// How long after the started process has ended a descendant may hold its output open without writing: enough for
/// what a pipeline's last part still has to say.
pub(super) const EXIT_GRACE: Duration = Duration::from_millis(250);
/// As much as a pipe holds by default, so that one read empties it.
const PIPE_CHUNK: usize = 64 << 10;
/// envd's size for terminals.
const PTY_CHUNK: usize = 16 << 10;

thread_local! {
    /// Everything runs on one thread and nothing is kept in it across an await, so that one buffer serves all.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; PIPE_CHUNK].into_boxed_slice());
}

/// Carries output to the readers until it ends, or until the process has ended and what it wrote is delivered; says
/// so on `done`. Afterwards it keeps the pipe empty for descendants that go on writing.
pub(super) async fn pump(
    process: Rc<Process>,
    channel: Channel,
    source: Rc<AsyncFd<OwnedFd>>,
    done: oneshot::Sender<()>,
) {
    if deliver(&process, channel, &source).await {
        return;
    }
    drop(done);
    drop(process);
    while let Some(bytes) = read(&source, channel, |_| ()).await {
        // Output of a detached process that never rests must not starve everybody else.
        if bytes == PIPE_CHUNK {
            tokio::task::yield_now().await;
        }
    }
}

/// What is left to do once the started process has ended.
struct Drain {
    /// Bytes that were in the pipe then.
    left: usize,
    until: Instant,
}

/// Whether the output has ended, as opposed to: enough of it was delivered.
async fn deliver(process: &Process, channel: Channel, source: &AsyncFd<OwnedFd>) -> bool {
    let mut drain: Option<Drain> = None;
    loop {
        let exit_changed = process.exit_changed.notified();
        if let Some(exited_at) = process.exited_at() {
            let grace = if process.hurried.get() { Duration::ZERO } else { EXIT_GRACE };
            let drain = drain.get_or_insert_with(|| {
                let waiting = rustix::io::ioctl_fionread(source.get_ref()).unwrap_or(0);
                Drain { left: usize::try_from(waiting).unwrap_or(usize::MAX), until: exited_at }
            });
            drain.until = exited_at + grace;
            if drain.left == 0 && drain.until <= Instant::now() {
                return false;
            }
        }
        let mut frame = None;
        let encode = |bytes: &[u8]| frame = Some(data_frame(channel, bytes));
        let until = drain.as_ref().map(|drain| drain.until.max(Instant::now()));
        let count = tokio::select! {
            biased;
            count = read(source, channel, encode) => count,
            () = exit_changed => continue,
            () = at(until) => {
                // Nothing to read any more: whatever was promised has been taken.
                if let Some(drain) = &mut drain { drain.left = 0; }
                continue;
            }
        };
        let (Some(count), Some(frame)) = (count, frame) else { return true };
        if let Some(drain) = &mut drain {
            drain.left = drain.left.saturating_sub(count);
        }
        deliver_frame(process, &frame).await;
    }
}

/// Waits for readers, but past a deadline no longer than the grace.
async fn deliver_frame(process: &Process, frame: &bytes::Bytes) {
    let publish = process.publish(frame);
    tokio::pin!(publish);
    loop {
        let exit_changed = process.exit_changed.notified();
        if let Some(exited_at) = process.exited_at()
            && process.hurried.get()
        {
            let _ = timeout_at(exited_at + EXIT_GRACE, publish).await;
            return;
        }
        tokio::select! {
            biased;
            () = &mut publish => return,
            () = exit_changed => {}
        }
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Reads once and hands the bytes on; `None` at the end. A terminal's end is an I/O error.
async fn read(source: &AsyncFd<OwnedFd>, channel: Channel, take: impl FnOnce(&[u8])) -> Option<usize> {
    let limit = if channel == Channel::Pty { PTY_CHUNK } else { PIPE_CHUNK };
    let mut take = Some(take);
    loop {
        let mut ready = source.readable().await.ok()?;
        let result = ready.try_io(|source| {
            SCRATCH.with_borrow_mut(|scratch| {
                let count = rustix::io::read(source.get_ref(), &mut scratch[..limit])?;
                if count > 0
                    && let Some(take) = take.take()
                {
                    take(&scratch[..count]);
                }
                Ok(count)
            })
        });
        match result {
            Ok(Ok(0)) => return None,
            Ok(Ok(count)) => return Some(count),
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Ok(Err(_)) => return None,
            Err(_would_block) => {}
        }
    }
}
