use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{Shutdown, listen, shutdown};

/// Connections that may wait to be accepted; the kernel allows fewer where it is told so.
const BACKLOG: i32 = 1024;

/// When the gateway's thread was last seen to go on.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    started: Instant,
    /// Milliseconds since it started.
    last: AtomicU64,
}

impl Heartbeat {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), last: AtomicU64::default() }
    }

    pub(crate) fn beat(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// How long ago the last one was.
    pub(crate) fn quiet_for(&self) -> Duration {
        self.started.elapsed().saturating_sub(Duration::from_millis(self.last.load(Ordering::Relaxed)))
    }
}

/// Ends an accept that waits, though it was not to: whether it waits is a flag that who holds a copy of the listener inside can change.
/// Connections that waited in the listener are reset. It has to [`resume`] afterwards, and not before the accept has seen the end.
pub(crate) fn wake(listener: &TcpListener) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    // One that does not listen can't be shut down, and is to listen again all the more.
    let _ = shutdown(listener, Shutdown::Both);
    Ok(())
}

/// Lets a listener that was woken go on.
pub(crate) fn resume(listener: &TcpListener) -> io::Result<()> {
    Ok(listen(listener, BACKLOG)?)
}

/// A second handle of a listener, for whoever is to wake it. Connections that are accepted from now on leave it its port.
pub(crate) fn handle(listener: &OwnedFd) -> io::Result<TcpListener> {
    set_socket_reuseaddr(listener, true)?;
    Ok(listener.try_clone()?.into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn an_accept_that_waits_ends_and_the_listener_goes_on() {
        let listener = {
            // With a port of its own choice a socket would get another one.
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            TcpListener::bind(("127.0.0.1", port)).unwrap()
        };
        let to = listener.local_addr().unwrap();
        let listener = handle(&listener.into()).unwrap();
        let _open = (TcpStream::connect(to).unwrap(), listener.accept().unwrap());
        let copy = listener.try_clone().unwrap();
        let waiting = std::thread::spawn(move || copy.accept().map(drop));
        let deadline = Instant::now() + Duration::from_secs(10);
        while !waiting.is_finished() {
            assert!(Instant::now() < deadline, "it waits on");
            wake(&listener).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        waiting.join().unwrap().unwrap_err();
        resume(&listener).unwrap();
        listener.set_nonblocking(false).unwrap();
        let stream = TcpStream::connect(to).unwrap();
        assert_eq!(listener.accept().unwrap().1, stream.local_addr().unwrap());
    }
}
