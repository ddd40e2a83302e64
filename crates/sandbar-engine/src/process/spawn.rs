use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::fs::{Gid, Uid};
use rustix::io::FdFlags;
use rustix::pipe::PipeFlags;
use serde::{Deserialize, Serialize};

use super::stub::{self, Plan};
use super::{Capabilities, Child, Identity, OomScore, Tree, pty};

/// What to start, and how.
#[derive(Debug, Default)]
pub struct Spawn {
    /// Paths to try in order, as a shell tries the folders of `PATH`.
    pub programs: Vec<CString>,
    /// Arguments, the program's own name first.
    pub argv: Vec<CString>,
    /// The whole environment, as `NAME=value`.
    pub env: Vec<CString>,
    /// Working folder; entered with the rights of the new process.
    pub cwd: Option<CString>,
    /// Whom it runs as.
    pub identity: Identity,
    /// What it may do beyond its user's rights.
    pub capabilities: Capabilities,
    /// Its descriptors 0 to 2.
    pub stdio: Stdio,
    /// Its descriptors from 3 on, in order.
    pub more_descriptors: Vec<OwnedFd>,
    /// Limits, lowered before the identity changes.
    pub rlimits: Vec<Rlimit>,
    /// Makes it a victim before its starter when memory runs out; absent means that it inherits.
    pub oom_score: Option<Arc<OomScore>>,
}

/// The first three descriptors of a new process.
#[derive(Debug)]
pub enum Stdio {
    /// Two pipes for output; a third for input, or `/dev/null` where `stdin` is absent.
    Pipes {
        /// Whether standard input is a pipe.
        stdin: Stdin,
    },
    /// A new terminal of that size, which becomes the controlling one.
    Pty {
        /// Columns.
        cols: u16,
        /// Rows.
        rows: u16,
    },
    /// These.
    Given([OwnedFd; 3]),
}

impl Default for Stdio {
    fn default() -> Self {
        Self::Pipes { stdin: Stdin::Null }
    }
}

/// Where standard input of a process with pipes comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stdin {
    /// `/dev/null`.
    #[default]
    Null,
    /// A pipe, whose other end is in [`Child::stdin`].
    Pipe,
}

/// Something `setrlimit` limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Address space, bytes.
    As,
    /// Core files, bytes.
    Core,
    /// Processor time, seconds.
    Cpu,
    /// Data segment, bytes.
    Data,
    /// Size of a file, bytes.
    Fsize,
    /// Locked memory, bytes.
    Memlock,
    /// Descriptors.
    Nofile,
    /// Processes of the user.
    Nproc,
    /// Stack, bytes.
    Stack,
}

/// A limit of a new process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimit {
    /// Of what.
    pub resource: Resource,
    /// The limit in force.
    pub soft: u64,
    /// What the process may raise it to.
    pub hard: u64,
}

impl Spawn {
    /// Starts the command's stub and returns at once. Whether the program itself could be executed is the first
    /// event that [`Child::next_event`] reads from the report.
    ///
    /// Safe in a process with several threads.
    pub fn start(self) -> Result<Child, SpawnError> {
        let ends = Ends::open(&self).map_err(|source| SpawnError { step: "open its descriptors", source })?;
        let (report, report_write) =
            pipe().map_err(|source| SpawnError { step: "open its report pipe", source })?;
        rustix::io::ioctl_fionbio(&report, true)
            .map_err(|source| SpawnError { step: "open its report pipe", source: source.into() })?;
        let plan = Plan::new(&self, &ends.inner, report_write.as_raw_fd(), ends.pty.is_some());
        let launched = match &self.oom_score {
            Some(score) => score.while_raised(|| stub::launch(plan)),
            None => stub::launch(plan),
        };
        let (pid, pidfd) = launched.map_err(|source| SpawnError { step: "fork", source })?;
        let Ends { stdin, stdout, stderr, pty, .. } = ends;
        Ok(Child { tree: Tree::new(pid, pidfd), report, stdin, stdout, stderr, pty })
    }
}

/// Starting a stub failed: most often a limit on processes or descriptors.
#[derive(Debug)]
pub struct SpawnError {
    step: &'static str,
    source: io::Error,
}

impl SpawnError {
    /// Whether a limit of the kernel or of a cgroup was in the way, so that a later try may succeed.
    pub fn is_exhaustion(&self) -> bool {
        let limits = [libc::EAGAIN, libc::ENOMEM, libc::EMFILE, libc::ENFILE, libc::ENOSPC];
        self.source.raw_os_error().is_some_and(|code| limits.contains(&code))
    }

    /// Whether the limit on processes was in the way.
    pub fn is_process_limit(&self) -> bool {
        self.source.raw_os_error() == Some(libc::EAGAIN)
    }
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "start a process: {}: {}", self.step, self.source)
    }
}

impl std::error::Error for SpawnError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Both ends of a new process's descriptors.
struct Ends {
    /// The child's, by its descriptor numbers; each above every one of these numbers, so that no `dup2` overwrites
    /// one that is still to be copied.
    inner: Vec<OwnedFd>,
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    pty: Option<OwnedFd>,
}

impl Ends {
    fn open(spawn: &Spawn) -> io::Result<Self> {
        let mut ends = Self { inner: Vec::new(), stdin: None, stdout: None, stderr: None, pty: None };
        let mut inner: Vec<OwnedFd> = Vec::new();
        match &spawn.stdio {
            Stdio::Pipes { stdin } => {
                inner.push(if *stdin == Stdin::Pipe {
                    let (read, write) = pipe_of(&spawn.identity)?;
                    rustix::io::ioctl_fionbio(&write, true)?;
                    ends.stdin = Some(write);
                    read
                } else {
                    rustix::fs::open(
                        "/dev/null",
                        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
                        0.into(),
                    )?
                });
                for slot in [&mut ends.stdout, &mut ends.stderr] {
                    let (read, write) = pipe_of(&spawn.identity)?;
                    rustix::io::ioctl_fionbio(&read, true)?;
                    *slot = Some(read);
                    inner.push(write);
                }
            }
            Stdio::Pty { cols, rows } => {
                let (master, slave) = pty::open(*cols, *rows, &spawn.identity)?;
                inner.extend([slave.try_clone()?, slave.try_clone()?, slave]);
                ends.pty = Some(master);
            }
            Stdio::Given(given) => {
                for descriptor in given {
                    inner.push(descriptor.try_clone()?);
                }
            }
        }
        for descriptor in &spawn.more_descriptors {
            inner.push(descriptor.try_clone()?);
        }
        let first_free = RawFd::try_from(inner.len()).unwrap_or(RawFd::MAX);
        for descriptor in inner {
            ends.inner.push(if descriptor.as_raw_fd() < first_free {
                rustix::io::fcntl_dupfd_cloexec(&descriptor, first_free)?
            } else {
                rustix::io::fcntl_setfd(descriptor.as_fd(), FdFlags::CLOEXEC)?;
                descriptor
            });
        }
        Ok(ends)
    }
}

/// A pipe that belongs to whoever is going to use it, who may then also open it by name (`/dev/stderr`).
fn pipe_of(identity: &Identity) -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe()?;
    if let Identity::Set { uid, gid, .. } = identity {
        // Both ends are one inode. Without the right to change owners the program still has its descriptors.
        let _ = rustix::fs::fchown(&read, Some(Uid::from_raw(*uid)), Some(Gid::from_raw(*gid)));
    }
    Ok((read, write))
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?)
}
