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
    /// What was read and not used yet: several lines may come at once.
    rest: Vec<u8>,
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
        Ok(Self { orders, rest: Vec::new(), report: Some(report) })
    }

    /// Reads the first line of orders.
    pub(super) fn read_orders(&mut self) -> Result<Orders> {
        let line = self.read_line(Some(Instant::now() + ORDERS))?;
        parse(&line.ok_or_else(cut_short)?)
    }

    /// Reads the orders that follow those to prepare, however late they come; `None` means that the caller wants nothing any more.
    pub(super) fn read_later_orders(&mut self) -> Result<Option<Orders>> {
        self.read_line(None)?.map(|line| parse(&line)).transpose()
    }

    /// Reads a line; `None` means that there is none any more.
    fn read_line(&mut self, end: Option<Instant>) -> Result<Option<Vec<u8>>> {
        let mut chunk = vec![0; 64 << 10];
        let mut looked_at = 0;
        loop {
            if let Some(length) = self.rest[looked_at..].iter().position(|byte| *byte == b'\n') {
                let rest = self.rest.split_off(looked_at + length + 1);
                return Ok(Some(std::mem::replace(&mut self.rest, rest)));
            }
            looked_at = self.rest.len();
            if looked_at > MAX_LINE {
                let message = format!("the orders are larger than {MAX_LINE} bytes");
                return Err(fail(ErrorKind::LimitExceeded, "create", message));
            }
            let left = end.map(|end| {
                Timespec::try_from(end.saturating_duration_since(Instant::now())).unwrap_or_default()
            });
            let mut watched = [PollFd::new(&self.orders, PollFlags::IN)];
            match poll(&mut watched, left.as_ref()) {
                Ok(0) => {
                    return Err(fail(ErrorKind::Timeout, "create", "the shim's orders did not come in time"));
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(cause) => return Err(io_error("create", "the shim's orders", cause)),
            }
            match rustix::io::read(&self.orders, &mut chunk) {
                Ok(0) if self.rest.is_empty() => return Ok(None),
                Ok(0) => return Err(cut_short()),
                Ok(got) => self.rest.extend_from_slice(&chunk[..got]),
                Err(Errno::INTR) => {}
                Err(cause) => return Err(io_error("create", "the shim's orders", cause)),
            }
        }
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

fn cut_short() -> sandbar_core::Error {
    fail(ErrorKind::Protocol, "create", "the shim's orders are cut short")
}

fn parse(line: &[u8]) -> Result<Orders> {
    // The text is not shown: it holds the environment.
    serde_json::from_slice(line).map_err(|cause| {
        let message = format!("the shim's orders are not of the protocol (line {})", cause.line());
        fail(ErrorKind::Protocol, "create", message)
            .with_hint("library and `sandbar` executable have to be of the same version")
    })
}
