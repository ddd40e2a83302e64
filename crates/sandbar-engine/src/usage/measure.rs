use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use super::child::{self, Counter, REPORT_BYTES, Report, Trouble};
use super::seen::Seen;
use super::tree;
use crate::error::Error;
use crate::ids::IdMode;
use crate::sys::{self, Cloned};

/// How long a counter that was killed may take to be gone; one that sleeps in a file system is reaped by the next count.
const END: Duration = Duration::from_secs(1);
/// Descriptors are moved up here, so that laying out the counter's own never overwrites one that is still needed.
const PARKING: i32 = 64;

/// What to count, of whom.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// How the sandbox's ids are mapped.
    pub ids: &'a IdMode,
    /// PID 1 of the sandbox.
    pub agent: BorrowedFd<'a>,
    /// Its processes as the host numbers them, PID 1 first.
    pub processes: &'a [Pid],
    /// The folder of the writable layers ([`LAYERS_FOLDER`](crate::LAYERS_FOLDER)), to count what was written.
    pub layers: Option<BorrowedFd<'a>>,
    /// Whether to count memory that no process has mapped.
    pub memory: bool,
    /// How long it may take.
    pub bound: Duration,
}

/// What was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes on disk in the writable layers, files that are deleted and still open included.
    pub disk_bytes: u64,
    /// Bytes in memory files, on file systems in memory, and in System V segments, whether mapped or not.
    pub memory_bytes: u64,
}

/// Counts. Takes at most the request's bound and a second more. What could not be counted whole is an error that says why:
/// it must not be taken for little.
pub fn measure(request: &Request<'_>) -> Result<Usage, Error> {
    let fail = |cause: Errno| Error::io("count usage of", "sandbox", cause);
    let agent = park(request.agent).map_err(fail)?;
    let layers = request.layers.map(park).transpose().map_err(fail)?;
    let (pipe, sender) = pipe_with(PipeFlags::CLOEXEC).map_err(fail)?;
    let sender = park(sender.as_fd()).map_err(fail)?;
    let memory_file = rustix::fs::memfd_create(c"sandbar-usage", MemfdFlags::CLOEXEC).map_err(fail)?;
    let mut counter = Counter {
        join: !matches!(request.ids, IdMode::Range { .. }),
        agent: agent.as_fd(),
        processes: request.processes,
        layers: layers.as_ref().map(|layers| layers.as_fd()),
        memory: request.memory,
        memory_device: rustix::fs::fstat(&memory_file).map_err(fail)?.st_dev,
        report: sender.as_fd(),
        seen: Seen::new(),
        levels: Vec::with_capacity(tree::MAX_DEPTH),
    };
    let (_, pidfd) = match fork().map_err(fail)? {
        Cloned::Parent { pid, pidfd } => (pid, pidfd),
        Cloned::Child => child::run(&mut counter),
    };
    drop(sender);
    let received = receive(&pipe, request.bound);
    let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    reap(&pidfd);
    match received.map_err(fail)? {
        Some(report) => finish(&report),
        None => Err(Error::reason(
            "count usage of",
            "sandbox",
            format!("it took longer than {} s", request.bound.as_secs_f32()),
        )),
    }
}

#[expect(unsafe_code, reason = "the fork itself")]
fn fork() -> Result<Cloned, Errno> {
    // SAFETY: the child goes straight to `child::run`, which neither allocates nor takes a lock and never returns.
    unsafe { sys::clone(0, None) }
}

fn park(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    fcntl_dupfd_cloexec(fd, PARKING)
}

/// The counter's report; `None` if there is none within `bound`.
fn receive(pipe: &OwnedFd, bound: Duration) -> Result<Option<[u8; REPORT_BYTES]>, Errno> {
    let end = Instant::now() + bound;
    loop {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).unwrap_or_default();
        match poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(cause) => return Err(cause),
            Ok(_) => {
                let mut report = [0; REPORT_BYTES];
                // Short enough never to be split.
                return match rustix::io::read(pipe, &mut report)? {
                    REPORT_BYTES => Ok(Some(report)),
                    _ => Err(Errno::CHILD),
                };
            }
        }
    }
}

fn reap(pidfd: &OwnedFd) {
    let bound = Timespec::try_from(END).unwrap_or_default();
    if matches!(poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&bound)), Ok(1..)) {
        let _ = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

fn finish(report: &[u8; REPORT_BYTES]) -> Result<Usage, Error> {
    let Report { usage, trouble } = Report::read(report);
    match trouble {
        None => Ok(usage),
        Some(Trouble::Kernel(errno)) => Err(Error::io("count usage of", "sandbox", errno)),
        Some(trouble) => Err(Error::reason("count usage of", "sandbox", trouble.reason())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, Permissions, create_dir, set_permissions, write};
    use std::os::unix::fs::PermissionsExt as _;

    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    use super::*;

    fn count(layers: &std::path::Path, processes: &[Pid], memory: bool) -> Result<Usage, Error> {
        let layers = File::open(layers).unwrap();
        let agent = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        measure(&Request {
            ids: &IdMode::range(1_900_000_000),
            agent: agent.as_fd(),
            processes,
            layers: Some(layers.as_fd()),
            memory,
            bound: Duration::from_secs(10),
        })
    }

    #[test]
    fn a_tree_is_counted_deep_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path().join("big"), vec![1; 3 << 20]).unwrap();
        let top = dir.path().join("fs/upper");
        std::fs::create_dir_all(&top).unwrap();
        std::os::unix::fs::symlink(dir.path(), top.join("out")).unwrap();
        let mut deep = top.clone();
        // Deeper than the folders that are kept open.
        for _ in 0..600 {
            deep.push("d");
        }
        std::fs::create_dir_all(&deep).unwrap();
        for number in 0..2000 {
            create_dir(top.join(format!("dir-{number}"))).unwrap();
        }
        let before = count(&dir.path().join("fs"), &[], false).unwrap().disk_bytes;
        assert!(before < 16 << 20, "{before}");
        write(deep.join("file"), vec![1; 2 << 20]).unwrap();
        for number in 0..50 {
            std::fs::hard_link(deep.join("file"), top.join(format!("again-{number}"))).unwrap();
        }
        let grown = count(&dir.path().join("fs"), &[], false).unwrap().disk_bytes - before;
        assert!((2 << 20..3 << 20).contains(&grown), "{grown}");
    }

    #[test]
    fn no_layers_yet_is_nothing_and_a_folder_that_can_not_be_read_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(count(dir.path(), &[], false).unwrap(), Usage::default());
        if rustix::process::geteuid().is_root() {
            return;
        }
        create_dir(dir.path().join("upper")).unwrap();
        set_permissions(dir.path().join("upper"), Permissions::from_mode(0o000)).unwrap();
        assert!(count(dir.path(), &[], false).is_err());
    }

    #[test]
    fn time_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        create_dir(dir.path().join("upper")).unwrap();
        for number in 0..20_000 {
            File::create(dir.path().join(format!("upper/{number}"))).unwrap();
        }
        let layers = File::open(dir.path()).unwrap();
        let agent = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let request = Request {
            ids: &IdMode::range(1_900_000_000),
            agent: agent.as_fd(),
            processes: &[],
            layers: Some(layers.as_fd()),
            memory: false,
            bound: Duration::from_micros(200),
        };
        let error = measure(&request).unwrap_err();
        assert!(error.to_string().contains("longer"), "{error}");
    }

    #[test]
    fn memory_files_count_once_whoever_has_them() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: an ordinary user can't join its own namespaces");
        }
        let dir = tempfile::tempdir().unwrap();
        let me = [getpid()];
        let before = count(dir.path(), &me, true).unwrap().memory_bytes;
        let file = rustix::fs::memfd_create(c"held", MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&file, &vec![1; 1 << 20]).unwrap();
        let _again = rustix::io::dup(&file).unwrap();
        let grown = count(dir.path(), &me, true).unwrap().memory_bytes - before;
        assert!((1 << 20..2 << 20).contains(&grown), "{grown}");
    }
    #[test]
    #[expect(
        deprecated,
        reason = "its successor is unsafe for what it may do to memory, and this asks for descriptors alone"
    )]
    fn a_thread_with_a_table_of_its_own_hides_nothing() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: an ordinary user can't join its own namespaces");
        }
        let dir = tempfile::tempdir().unwrap();
        let me = [getpid()];
        let before = count(dir.path(), &me, true).unwrap().memory_bytes;
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (over, is_over) = std::sync::mpsc::channel::<()>();
        let hiding = std::thread::spawn(move || {
            rustix::thread::unshare(rustix::thread::UnshareFlags::FILES).unwrap();
            let file = rustix::fs::memfd_create(c"hidden", MemfdFlags::CLOEXEC).unwrap();
            rustix::io::write(&file, &vec![1; 2 << 20]).unwrap();
            ready.send(()).unwrap();
            let _ = is_over.recv();
        });
        is_ready.recv().unwrap();
        let grown = count(dir.path(), &me, true).unwrap().memory_bytes - before;
        drop(over);
        hiding.join().unwrap();
        assert!((2 << 20..4 << 20).contains(&grown), "{grown}");
    }
}
