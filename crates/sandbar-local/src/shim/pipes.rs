use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use sandbar_core::{ErrorKind, Result};

use super::protocol::{MAX_LINE, Orders, Report};
use crate::error::{fail, io_error};

/// How long a caller may take to send its orders: it does so at once.
const ORDERS: Duration = Duration::from_secs(10);

/// What connects a new shim with its caller: orders come in, one report goes out. As long as the caller wants the sandbox it keeps its end of the
/// first pipe open.
#[derive(Debug)]
pub(super) struct Pipes {
    orders: OwnedFd,
    report: Option<OwnedFd>,
}

impl Pipes {
    /// Takes them from standard input and output, and leaves `/dev/null` there.
    pub(super) fn take() -> rustix::io::Result<Self> {
        let orders = fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let report = fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
        let null = openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        Ok(Self { orders, report: Some(report) })
    }

    /// Reads the one line of orders.
    pub(super) fn read_orders(&mut self) -> Result<Orders> {
        let end = Instant::now() + ORDERS;
        let mut line = Vec::new();
        let mut chunk = vec![0; 64 << 10];
        while line.last() != Some(&b'\n') {
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).unwrap_or_default();
            let mut watched = [PollFd::new(&self.orders, PollFlags::IN)];
            match poll(&mut watched, Some(&left)) {
                Ok(0) => {
                    return Err(fail(ErrorKind::Timeout, "create", "the shim's orders did not come in time"));
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(cause) => return Err(io_error("create", "the shim's orders", cause)),
            }
            match rustix::io::read(&self.orders, &mut chunk) {
                Ok(0) => return Err(fail(ErrorKind::Protocol, "create", "the shim's orders are cut short")),
                Ok(got) => line.extend_from_slice(&chunk[..got]),
                Err(Errno::INTR) => {}
                Err(cause) => return Err(io_error("create", "the shim's orders", cause)),
            }
            if line.len() > MAX_LINE {
                let message = format!("the orders are larger than {MAX_LINE} bytes");
                return Err(fail(ErrorKind::LimitExceeded, "create", message));
            }
        }
        // The text is not shown: it holds the environment.
        serde_json::from_slice(&line).map_err(|cause| {
            let message = format!("the shim's orders are not of the protocol (line {})", cause.line());
            fail(ErrorKind::Protocol, "create", message)
                .with_hint("library and `sandbar` executable have to be of the same version")
        })
    }

    /// Sends the report, once. A caller that is gone gets none.
    pub(super) fn report(&mut self, report: &Report) {
        let Some(pipe) = self.report.take() else { return };
        let Ok(mut line) = serde_json::to_vec(report) else { return };
        line.push(b'\n');
        let mut rest = &line[..];
        while !rest.is_empty() {
            match rustix::io::write(&pipe, rest) {
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Whether the caller let go of its end.
    pub(super) fn caller_is_gone(&self) -> bool {
        let mut watched = [PollFd::new(&self.orders, PollFlags::empty())];
        poll(&mut watched, Some(&Timespec::default())).is_ok()
            && watched[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// The end to watch in a runtime: it is readable at the caller's end only, since nothing is sent after the orders.
    pub(super) fn owner(&self) -> std::io::Result<tokio::net::unix::pipe::Receiver> {
        tokio::net::unix::pipe::Receiver::from_owned_fd(fcntl_dupfd_cloexec(&self.orders, 3)?)
    }
}
