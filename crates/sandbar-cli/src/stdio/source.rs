use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Bytes asked for at once.
const CHUNK: usize = 256 * 1024;

/// Reads our standard input without ever blocking the caller's loop.
///
/// The descriptor may be shared with other processes, so it is not made non-blocking: it is read once it polls readable.
#[derive(Debug)]
pub(crate) struct Source {
    /// `None` for what the kernel does not let anybody wait for, such as files: a read of those does not wait either.
    readiness: Option<AsyncFd<Stdin>>,
}

#[derive(Debug)]
struct Stdin(BorrowedFd<'static>);

impl AsRawFd for Stdin {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Source {
    /// Our standard input.
    pub(crate) fn stdin() -> io::Result<Self> {
        let stdin = Stdin(rustix::stdio::stdin());
        #[expect(
            deprecated,
            reason = "its replacement is unsafe; this descriptor stays open as long as the process"
        )]
        let registered = AsyncFd::try_with_interest(stdin, Interest::READABLE);
        let readiness = match registered {
            Ok(readiness) => Some(readiness),
            Err(error) => {
                let (_, error) = error.into_parts();
                if error.kind() != io::ErrorKind::PermissionDenied {
                    return Err(error);
                }
                None
            }
        };
        Ok(Self { readiness })
    }

    /// The next bytes; empty at end of file.
    pub(crate) async fn read(&self) -> io::Result<Bytes> {
        loop {
            let Some(readiness) = &self.readiness else {
                // The caller's loop gets its turn between two reads.
                tokio::task::yield_now().await;
                match read() {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    result => return result,
                }
            };
            let mut guard = readiness.readable().await?;
            if !is_readable(guard.get_inner().0) {
                guard.clear_ready();
                continue;
            }
            match read() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                result => return result,
            }
        }
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

fn read() -> io::Result<Bytes> {
    let mut chunk = Vec::with_capacity(CHUNK);
    rustix::io::read(rustix::stdio::stdin(), spare_capacity(&mut chunk))?;
    Ok(chunk.into())
}
