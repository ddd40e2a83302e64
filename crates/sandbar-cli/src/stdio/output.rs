use std::future::pending;
use std::io::{self, IsTerminal};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::thread::JoinHandle;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};

/// Chunks that may wait for a slow reader before the command is held back.
const QUEUE: usize = 4;
/// A pipe that polls writable takes this much without blocking (`PIPE_BUF`, pipe(7)).
const PIPE_BUF: usize = 4096;

/// Which of our descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// Writes one of our descriptors without ever blocking the caller's loop.
///
/// The descriptor may be shared with other processes, so it is not made non-blocking. What surely does not block is written directly;
/// the rest goes through a thread, started when it is first needed.
#[derive(Debug)]
pub(crate) struct Output {
    stream: Stream,
    kind: Kind,
    writer: Option<Writer>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A file or the null device: a write never waits for a reader.
    Direct,
    Pipe,
    /// A terminal, a socket.
    Other,
}

#[derive(Debug)]
struct Writer {
    chunks: mpsc::Sender<Bytes>,
    done: oneshot::Receiver<()>,
    thread: JoinHandle<io::Result<()>>,
}

impl Stream {
    fn fd(self) -> BorrowedFd<'static> {
        match self {
            Self::Stdout => rustix::stdio::stdout(),
            Self::Stderr => rustix::stdio::stderr(),
        }
    }
}

impl Output {
    pub(crate) fn new(stream: Stream) -> Self {
        let kind = match fstat(stream.fd()).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::RegularFile) => Kind::Direct,
            Ok(FileType::CharacterDevice) if !stream.fd().is_terminal() => Kind::Direct,
            Ok(FileType::Fifo) => Kind::Pipe,
            _ => Kind::Other,
        };
        Self { stream, kind, writer: None }
    }

    /// Writes all of `bytes`; waits while the reader is slow.
    pub(crate) async fn write(&mut self, mut bytes: Bytes) -> io::Result<()> {
        if self.writer.is_none() && self.fits(bytes.len()) {
            let written = write_some(self.stream.fd(), &bytes)?;
            bytes = bytes.slice(written..);
        }
        if self.writer.is_none() && self.kind == Kind::Direct {
            return write_all(self.stream.fd(), &bytes);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let stream = self.stream;
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(Writer::start(stream)?),
        };
        if writer.chunks.send(bytes).await.is_ok() {
            return Ok(());
        }
        // The thread only ends early with an error; it is the answer.
        self.finish().await.and(Err(io::ErrorKind::BrokenPipe.into()))
    }

    /// Waits until all is written.
    pub(crate) async fn finish(&mut self) -> io::Result<()> {
        let Some(Writer { chunks, done, thread }) = self.writer.take() else {
            return Ok(());
        };
        drop(chunks);
        // An error here means that the thread is gone, which is what is waited for.
        let _ = done.await;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the writing thread panicked")))
    }

    /// Waits until nobody can read any more what is written to a pipe: a command that has nothing to write for long does not
    /// find out otherwise. Never comes for what is no pipe, or can't be waited for.
    pub(crate) async fn reader_gone(stream: Stream) {
        let is_pipe = Self::new(stream).kind == Kind::Pipe;
        // A duplicate, as the runtime wants to own what it waits for.
        let waited = is_pipe.then(|| stream.fd().try_clone_to_owned().ok()).flatten();
        let waited = waited.and_then(|fd| watch_errors(fd).ok());
        let Some(waited) = waited else { return pending().await };
        loop {
            match waited.ready(Interest::ERROR).await {
                Ok(guard) if guard.ready().is_error() => return,
                Ok(mut guard) => guard.clear_ready(),
                Err(_) => return pending().await,
            }
        }
    }

    /// Whether a write of this many bytes surely does not block.
    fn fits(&self, length: usize) -> bool {
        self.kind == Kind::Pipe && length <= PIPE_BUF && {
            let fd = self.stream.fd();
            let mut fds = [PollFd::new(&fd, PollFlags::OUT)];
            // A pipe without readers polls ready as well, and the write then says so.
            poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
        }
    }
}

impl Writer {
    fn start(stream: Stream) -> io::Result<Self> {
        let (chunks, mut queue) = mpsc::channel::<Bytes>(QUEUE);
        let (finished, done) = oneshot::channel();
        let thread = std::thread::Builder::new().name("output".into()).spawn(move || {
            let mut result = Ok(());
            while let Some(chunk) = queue.blocking_recv() {
                result = write_all(stream.fd(), &chunk);
                if result.is_err() {
                    break;
                }
            }
            drop(queue);
            // Nobody waits any more if the caller has gone on.
            let _ = finished.send(());
            result
        })?;
        Ok(Self { chunks, done, thread })
    }
}

/// The runtime's constructor is deprecated because a type of the caller's own may answer with another descriptor than the one
/// it owns; an `OwnedFd` does not. Its successor is an unsafe function, and this crate has no unsafe code.
#[expect(deprecated, reason = "sound for an `OwnedFd`, see above")]
fn watch_errors(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, Interest::ERROR)
}

fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        bytes = &bytes[write_some(fd, bytes)?..];
    }
    Ok(())
}

/// One write. Somebody else may have made the descriptor non-blocking, and then this waits for room.
fn write_some(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match rustix::io::write(fd, bytes) {
            Ok(0) if !bytes.is_empty() => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => return Ok(written),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => {
                poll(&mut [PollFd::new(&fd, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
