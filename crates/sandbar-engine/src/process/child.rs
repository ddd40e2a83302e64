use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::Tree;

/// A command that was started. Its descriptors here don't block.
#[derive(Debug)]
pub struct Child {
    /// The command and everything it started.
    pub tree: Tree,
    /// Events come through this pipe; it ends when the whole tree has.
    pub report: OwnedFd,
    /// Write end of standard input, where asked for.
    pub stdin: Option<OwnedFd>,
    /// Read end of standard output, with pipes.
    pub stdout: Option<OwnedFd>,
    /// Read end of standard error, with pipes.
    pub stderr: Option<OwnedFd>,
    /// The terminal's master, with a terminal.
    pub pty: Option<OwnedFd>,
}

/// What a stub reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The program runs under that process id.
    Started(i32),
    /// It could not be executed; nothing runs.
    Failed(Failure),
    /// It ended with that status, as `wait` gives it. Descendants may live on.
    Exited(i32),
    /// The stub has no children any more, or was killed: the tree is empty or lost.
    Gone,
}

/// Why a program could not be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was being done.
    pub stage: Stage,
    /// The kernel's error number.
    pub errno: i32,
}

impl Failure {
    /// The error as the standard library words it, without the number.
    pub fn reason(&self) -> String {
        let text = io::Error::from_raw_os_error(self.errno).to_string();
        let text = text.split(" (os error").next().unwrap_or_default();
        let mut letters = text.chars();
        letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
    }
}

macro_rules! stages {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// Steps between the fork and the program's first instruction.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Stage { $($(#[$doc])* $name = $number,)* }

        impl Stage {
            fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }
        }
    };
}

stages! {
    /// Making the second process.
    Fork = 1,
    /// Session, terminal and descriptors.
    Descriptors = 2,
    /// Resource limits.
    Limits = 3,
    /// User, group and capabilities.
    Identity = 4,
    /// Entering the working folder.
    Chdir = 5,
    /// Executing.
    Exec = 6,
}

/// Bytes of one report: kind, stage, two unused, and a number in native order. Below `PIPE_BUF`, hence never split.
pub(super) const RECORD_BYTES: usize = 8;
pub(super) const STARTED: u8 = 1;
pub(super) const FAILED: u8 = 2;
pub(super) const EXITED: u8 = 3;

impl Child {
    /// Reads the next event; `None` where there is none yet.
    pub fn next_event(&self) -> io::Result<Option<Event>> {
        read_event(&self.report)
    }

    /// Waits for the next event.
    pub fn wait_event(&self, limit: Duration) -> io::Result<Event> {
        let end = Instant::now() + limit;
        loop {
            if let Some(event) = self.next_event()? {
                return Ok(event);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "wait for a process: no event in time"));
            }
            let timeout = left.try_into().map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&self.report, PollFlags::IN)], Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Reads the next event of a report pipe that doesn't block.
pub fn read_event(report: &impl AsFd) -> io::Result<Option<Event>> {
    let mut record = [0; RECORD_BYTES];
    match rustix::io::read(report, &mut record) {
        Ok(0) => Ok(Some(Event::Gone)),
        Ok(RECORD_BYTES) => {
            let [kind, stage, _, _, number @ ..] = record;
            let number = i32::from_ne_bytes(number);
            match (kind, Stage::from_number(stage)) {
                (STARTED, _) => Ok(Some(Event::Started(number))),
                (EXITED, _) => Ok(Some(Event::Exited(number))),
                (FAILED, Some(stage)) => Ok(Some(Event::Failed(Failure { stage, errno: number }))),
                _ => Err(io::Error::new(io::ErrorKind::InvalidData, "report of a stub is malformed")),
            }
        }
        Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "report of a stub is cut short")),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
