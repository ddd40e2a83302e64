//! The counter. It is a copy of a process with threads, so nothing in this file or below it allocates or takes a lock.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};

use super::descriptors::{self, Devices};
use super::measure::Usage;
use super::seen::Seen;
use super::tree::{self, Level};
use super::{calls, memory, text};
use crate::sys;

/// Status, error number, and two counts.
pub(super) const REPORT_BYTES: usize = 4 + 4 + 8 + 8;

/// What a counter needs, ready before the fork.
pub(super) struct Counter<'a> {
    /// Whether to join the sandbox's user namespace: root has every right without.
    pub(super) join: bool,
    pub(super) agent: BorrowedFd<'a>,
    pub(super) processes: &'a [Pid],
    pub(super) layers: Option<BorrowedFd<'a>>,
    pub(super) memory: bool,
    /// The device of memory files.
    pub(super) memory_device: u64,
    pub(super) report: BorrowedFd<'a>,
    pub(super) seen: Seen,
    pub(super) levels: Vec<Level>,
}

/// Why a count is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    Kernel(Errno),
    /// Of the sandbox's namespaces.
    NotJoined,
    TooManyEntries,
    TooDeep,
    /// A folder was moved while it was being counted.
    Moved,
    TooManyDescriptors,
    /// A process hides its descriptors.
    Hidden,
}

impl From<Errno> for Trouble {
    fn from(cause: Errno) -> Self {
        Self::Kernel(cause)
    }
}

impl Trouble {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Kernel(_) => "the kernel refused",
            Self::NotJoined => "its namespaces can't be joined",
            Self::TooManyEntries => "it has more files than are counted",
            Self::TooDeep => "its folders are nested deeper than is counted",
            Self::Moved => "its folders were moved during the count",
            Self::TooManyDescriptors => "it has more files open than are counted",
            Self::Hidden => "one of its processes hides what it has open",
        }
    }

    pub(crate) fn code(self) -> (u32, i32) {
        match self {
            Self::Kernel(errno) => (1, errno.raw_os_error()),
            Self::NotJoined => (2, 0),
            Self::TooManyEntries => (3, 0),
            Self::TooDeep => (4, 0),
            Self::Moved => (5, 0),
            Self::TooManyDescriptors => (6, 0),
            Self::Hidden => (7, 0),
        }
    }

    pub(crate) fn from_code(code: u32, errno: i32) -> Option<Self> {
        match code {
            0 => None,
            2 => Some(Self::NotJoined),
            3 => Some(Self::TooManyEntries),
            4 => Some(Self::TooDeep),
            5 => Some(Self::Moved),
            6 => Some(Self::TooManyDescriptors),
            7 => Some(Self::Hidden),
            _ => Some(Self::Kernel(Errno::from_raw_os_error(errno))),
        }
    }
}

/// What a counter says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) usage: Usage,
    pub(super) trouble: Option<Trouble>,
}

impl Report {
    fn write(&self) -> [u8; REPORT_BYTES] {
        let (code, errno) = self.trouble.map_or((0, 0), Trouble::code);
        let mut bytes = [0; REPORT_BYTES];
        bytes[..4].copy_from_slice(&code.to_le_bytes());
        bytes[4..8].copy_from_slice(&errno.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.usage.disk_bytes.to_le_bytes());
        bytes[16..].copy_from_slice(&self.usage.memory_bytes.to_le_bytes());
        bytes
    }

    pub(super) fn read(bytes: &[u8; REPORT_BYTES]) -> Self {
        let (code, rest) = bytes.split_at(4);
        let (errno, rest) = rest.split_at(4);
        let (disk, memory) = rest.split_at(8);
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        Self {
            usage: Usage { disk_bytes: number(disk), memory_bytes: number(memory) },
            trouble: Trouble::from_code(
                u32::from_le_bytes(code.try_into().unwrap_or_default()),
                i32::from_le_bytes(errno.try_into().unwrap_or_default()),
            ),
        }
    }
}

/// Counts, reports and ends.
pub(super) fn run(counter: &mut Counter<'_>) -> ! {
    let mut usage = Usage::default();
    let trouble = count(counter, &mut usage).err();
    let report = Report { usage, trouble }.write();
    let _ = rustix::io::write(counter.report, &report);
    sys::exit(0)
}

fn count(counter: &mut Counter<'_>, usage: &mut Usage) -> Result<(), Trouble> {
    close_others(counter)?;
    if counter.join {
        join(counter, ThreadNameSpaceType::USER)?;
    }
    if let Some(layers) = counter.layers {
        tree::count(layers, counter, usage)?;
    }
    let Some(agent) = counter.processes.first() else { return Ok(()) };
    let Some(root) = text::open_root(*agent)? else { return Ok(()) };
    let devices = Devices::of(&root, counter.memory_device)?;
    descriptors::count(counter, &devices, usage)?;
    if counter.memory {
        memory::count_mounts(&root, usage)?;
        join(counter, ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION)?;
        memory::count_segments(usage)?;
    }
    Ok(())
}

/// Closes what the caller had open.
fn close_others(counter: &Counter<'_>) -> Result<(), Errno> {
    let number = |fd: BorrowedFd<'_>| fd.as_raw_fd();
    let layers = counter.layers.map_or(-1, number);
    calls::close_others([number(counter.report), number(counter.agent), layers])
}

fn join(counter: &Counter<'_>, kind: ThreadNameSpaceType) -> Result<(), Trouble> {
    move_into_thread_name_spaces(counter.agent, kind).map_err(|cause| match cause {
        // It has ended, and takes nothing any more.
        Errno::SRCH => Trouble::Kernel(cause),
        _ => Trouble::NotJoined,
    })
}
