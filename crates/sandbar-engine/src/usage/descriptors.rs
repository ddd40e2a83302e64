//! Files that were deleted and are still open, and files in memory: they have no name, only descriptors.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, Stat, fstat, openat, statat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::calls;
use super::child::{Counter, Trouble};
use super::measure::Usage;
use super::seen::{Met, Seen};
use super::text::{Path, gone, number};
use super::tree::on_disk;

/// Descriptors that are looked at in one count: far more than servers have open, in about a second.
const MAX_DESCRIPTORS: u64 = 1_000_000;
/// As in the count of the layers; two stand on the stack at a time.
const BUFFER_BYTES: usize = 8 * 1024;

/// Whose deleted files count, and as what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Devices {
    /// The sandbox's root, and `/usr`, which may be a layer of its own.
    disk: [u64; 2],
    memory: u64,
}

impl Devices {
    pub(super) fn of(root: &OwnedFd, memory: u64) -> Result<Self, Errno> {
        let top = fstat(root)?.st_dev;
        let usr = match statat(root, c"usr", AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat.st_dev,
            Err(Errno::NOENT) => top,
            Err(cause) => return Err(cause),
        };
        Ok(Self { disk: [top, usr], memory })
    }
}

struct Tally<'a> {
    devices: &'a Devices,
    seen: &'a mut Seen,
    usage: &'a mut Usage,
    looked_at: u64,
    /// Descriptors can't be looked at on this machine at all, which the first process shows.
    blind: bool,
}

/// Counts what the processes have open.
pub(super) fn count(counter: &mut Counter<'_>, devices: &Devices, usage: &mut Usage) -> Result<(), Trouble> {
    let mut tally = Tally { devices, seen: &mut counter.seen, usage, looked_at: 0, blind: false };
    for (number, pid) in counter.processes.iter().enumerate() {
        match of_process(*pid, &mut tally) {
            // Whoever hides what the agent does not is up to something; where the agent's own can't be seen, the kernel or
            // a container round us keeps them from us.
            Err(Trouble::Hidden) if number == 0 => tally.blind = true,
            Err(Trouble::Hidden) if tally.blind => {}
            done => done?,
        }
    }
    Ok(())
}

fn of_process(pid: Pid, tally: &mut Tally<'_>) -> Result<(), Trouble> {
    // A program that was deleted while it runs.
    if let Ok(stat) = statat(CWD, Path::process(pid).with(b"exe").as_c_str(), AtFlags::empty()) {
        tally.add(&stat)?;
    }
    // Only root may ask for what is mapped; for it, this finds files that are deleted, closed and still in use.
    let _ = listed(Path::process(pid).with(b"map_files").as_c_str(), tally);
    match listed(Path::process(pid).with(b"fd").as_c_str(), tally) {
        Err(Trouble::Hidden) => taken(pid, tally)?,
        done => done?,
    }
    // Threads may have tables of their own.
    let tasks = Path::process(pid).with(b"task");
    let Some(tasks) = gone(open(tasks.as_c_str()))? else { return Ok(()) };
    let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
    let mut listing = RawDir::new(&tasks, &mut buffer);
    while let Some(entry) = listing.next() {
        let Some(entry) = gone(entry)? else { return Ok(()) };
        let Some(thread) = number(entry.file_name()) else { continue };
        if thread == pid.as_raw_nonzero().get() || calls::same_files(pid, thread) {
            continue;
        }
        let path = Path::process(pid).with(b"task/").number(thread).with(b"/fd");
        listed(path.as_c_str(), tally)?;
    }
    Ok(())
}

/// Looks at what a folder of links in `/proc` leads to, without opening it.
fn listed(path: &CStr, tally: &mut Tally<'_>) -> Result<(), Trouble> {
    let folder = match gone(open(path)) {
        Ok(Some(folder)) => folder,
        Ok(None) => return Ok(()),
        Err(Errno::ACCESS | Errno::PERM) => return Err(Trouble::Hidden),
        Err(cause) => return Err(cause.into()),
    };
    let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
    let mut listing = RawDir::new(&folder, &mut buffer);
    while let Some(entry) = listing.next() {
        let Some(entry) = gone(entry)? else { return Ok(()) };
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match gone(statat(&folder, name, AtFlags::empty())) {
            Ok(Some(stat)) => tally.add(&stat)?,
            Ok(None) => {}
            Err(Errno::ACCESS | Errno::PERM) => return Err(Trouble::Hidden),
            Err(cause) => return Err(cause.into()),
        }
    }
    Ok(())
}

/// As [`listed`], by taking the descriptors over one by one. With a single id, the links of a process that is not dumpable
/// belong to the host's root; its descriptors can be had all the same by whoever made its user namespace.
fn taken(pid: Pid, tally: &mut Tally<'_>) -> Result<(), Trouble> {
    let hidden = |cause: Errno| match cause {
        Errno::ACCESS | Errno::PERM | Errno::NOSYS => Trouble::Hidden,
        cause => Trouble::Kernel(cause),
    };
    let Some(process) = gone(pidfd_open(pid, PidfdFlags::empty())).map_err(hidden)? else { return Ok(()) };
    let numbers = Path::process(pid).with(b"fdinfo");
    let Some(numbers) = gone(open(numbers.as_c_str())).map_err(hidden)? else { return Ok(()) };
    let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
    let mut listing = RawDir::new(&numbers, &mut buffer);
    while let Some(entry) = listing.next() {
        let Some(entry) = gone(entry).map_err(hidden)? else { return Ok(()) };
        let Some(number) = number(entry.file_name()) else { continue };
        match pidfd_getfd(&process, number, PidfdGetfdFlags::empty()) {
            Ok(taken) => tally.add(&fstat(&taken)?)?,
            Err(Errno::BADF | Errno::SRCH) => {}
            Err(cause) => return Err(hidden(cause)),
        }
    }
    Ok(())
}

impl Tally<'_> {
    fn add(&mut self, stat: &Stat) -> Result<(), Trouble> {
        self.looked_at += 1;
        if self.looked_at > MAX_DESCRIPTORS {
            return Err(Trouble::TooManyDescriptors);
        }
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || stat.st_nlink != 0 {
            return Ok(());
        }
        let total = if stat.st_dev == self.devices.memory {
            &mut self.usage.memory_bytes
        } else if self.devices.disk.contains(&stat.st_dev) {
            &mut self.usage.disk_bytes
        } else {
            return Ok(());
        };
        match self.seen.meet(stat.st_dev, stat.st_ino) {
            Met::First => *total = total.saturating_add(on_disk(stat)),
            Met::Again => {}
            Met::Full => return Err(Trouble::TooManyDescriptors),
        }
        Ok(())
    }
}

fn open(path: &CStr) -> Result<OwnedFd, Errno> {
    openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}
