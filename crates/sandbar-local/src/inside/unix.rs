use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::Shutdown;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{AT_ONCE, receive};
use crate::descriptor;

/// A connection to the agent. The protocol passes no descriptors on it, so one that comes ends it; and one that nobody read is not left in the
/// queue, where it would be closed by the closer.
#[derive(Debug)]
pub(crate) struct Unix {
    socket: AsyncFd<OwnedFd>,
    late: Late,
}

/// What becomes of bytes that the other side does not take any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// They are an error.
    Refused,
    /// They are dropped: an agent that refuses a request before it has all of it says so in its answer, and that has to be read first. Where there
    /// is no answer, the end of the connection is the error.
    Dropped,
}

impl Unix {
    /// Connects to a socket in a sandbox' folder.
    pub(crate) async fn connect(path: &Path, late: Late) -> io::Result<Self> {
        let stream = tokio::net::UnixStream::connect(path).await?;
        Ok(Self { socket: descriptor::watch(stream.into_std()?.into())?, late })
    }
}

impl Drop for Unix {
    fn drop(&mut self) {
        // After this nothing more can come in; so the loop ends with what there is.
        if rustix::net::shutdown(self.socket.get_ref(), Shutdown::Both).is_err() {
            return;
        }
        let mut bytes = [0; 4096];
        loop {
            match receive(self.socket.get_ref(), &mut bytes) {
                // A stream has no empty messages, so this is its end.
                Ok((0, _, _)) => return,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }
}

impl AsyncRead for Unix {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let socket = &self.socket;
        let room = buf.remaining().min(AT_ONCE);
        loop {
            let mut ready = ready!(socket.poll_read_ready(cx))?;
            match receive(socket.get_ref(), buf.initialize_unfilled_to(room)) {
                Ok((_, _, received)) if received.len() > 0 => {
                    return Poll::Ready(Err(io::Error::other("the agent passes descriptors")));
                }
                Ok((got, _, _)) => {
                    buf.advance(got);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(cause) => return Poll::Ready(Err(cause.into())),
            }
        }
    }
}

impl AsyncWrite for Unix {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        use rustix::net::{SendFlags, send};
        let socket = &self.socket;
        loop {
            let mut ready = ready!(socket.poll_write_ready(cx))?;
            match send(socket.get_ref(), buf, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => return Poll::Ready(Ok(sent)),
                Err(Errno::PIPE | Errno::CONNRESET) if self.late == Late::Dropped => {
                    return Poll::Ready(Ok(buf.len()));
                }
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(cause) => return Poll::Ready(Err(cause.into())),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match rustix::net::shutdown(self.socket.get_ref(), Shutdown::Write) {
            Ok(()) | Err(Errno::NOTCONN) => Poll::Ready(Ok(())),
            Err(cause) => Poll::Ready(Err(cause.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tokio::io::AsyncReadExt;

    use super::super::received::tests::{give, lingering};
    use super::*;

    #[tokio::test]
    async fn descriptors_in_a_stream_or_in_its_queue_keep_nobody_waiting() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("a.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let begun = Instant::now();
        for reads in [true, false] {
            let mut stream = Unix::connect(&path, Late::Refused).await.unwrap();
            let (agent, _) = listener.accept().unwrap();
            let (near, far): (Vec<_>, Vec<_>) = lingering(2).into_iter().unzip();
            give(&agent.into(), b"HTTP/1.1 200 OK\r\n", &near);
            drop(near);
            if reads {
                stream.read(&mut [0; 4]).await.unwrap_err();
            }
            drop(stream);
            assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
            drop(far);
        }
    }
}
