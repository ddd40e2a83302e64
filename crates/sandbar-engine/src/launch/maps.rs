use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, write};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

use crate::error::Error;
use crate::host::Host;
use crate::ids::{Extent, IdMode};
use crate::obstacle::Obstacle;
use crate::sys::{self, Cloned};

/// What writing maps needs to know of the machine.
#[derive(Debug)]
pub(crate) struct MapTools {
    euid: u32,
    egid: u32,
    newuidmap: Option<PathBuf>,
    newgidmap: Option<PathBuf>,
}

impl MapTools {
    pub(crate) fn of(host: &Host) -> Self {
        Self {
            euid: host.euid,
            egid: host.egid,
            newuidmap: host.newuidmap.clone(),
            newgidmap: host.newgidmap.clone(),
        }
    }
}

/// Gives the user namespace of process `pid` its ids.
pub(crate) fn write_maps(pid: Pid, ids: &IdMode, tools: &MapTools, end: Instant) -> Result<(), Error> {
    let (uids, gids) = ids.maps(tools.euid, tools.egid);
    match ids {
        IdMode::Range { .. } => {
            put(pid, "uid_map", &lines(&uids))?;
            put(pid, "gid_map", &lines(&gids))
        }
        IdMode::Single => {
            put(pid, "uid_map", &lines(&uids))?;
            // Without this an ordinary user may not map a group: it could drop a group that takes rights away.
            put(pid, "setgroups", "deny")?;
            put(pid, "gid_map", &lines(&gids))
        }
        IdMode::Subordinate(_) => {
            let (Some(for_users), Some(for_groups)) = (&tools.newuidmap, &tools.newgidmap) else {
                return Err(Error::reason("map ids", "newuidmap", "not installed")
                    .with_obstacle(Obstacle::IdMapRefused));
            };
            // Both at once: each is a process of its own and looks up the user.
            let first = spawn(for_users, pid, &uids)?;
            let second = spawn(for_groups, pid, &gids);
            let first = finish(first, for_users, end);
            finish(second?, for_groups, end).and(first)
        }
    }
}

/// A user namespace with these maps that no process is in, for a mount's ids. Needs host root.
pub(crate) fn user_namespace(uids: &[Extent], gids: &[Extent], end: Instant) -> Result<OwnedFd, Error> {
    let fail = |cause: Errno| Error::io("make a user namespace for", "a mount", cause);
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).map_err(fail)?;
    let (pid, pidfd) = match clone_user_namespace().map_err(fail)? {
        Cloned::Parent { pid, pidfd } => (pid, pidfd),
        Cloned::Child => {
            // Its own copy of our end would keep the wait below from ever ending.
            drop(ours);
            let _ = recv(&theirs, &mut [0_u8; 1][..], RecvFlags::empty());
            sys::exit(0);
        }
    };
    drop(theirs);
    // An ordinary user may map a group only where groups can no longer be dropped; for a mount it makes no difference.
    let made = put(pid, "uid_map", &lines(uids))
        .and_then(|()| put(pid, "setgroups", "deny"))
        .and_then(|()| put(pid, "gid_map", &lines(gids)))
        .and_then(|()| {
            let path = format!("/proc/{}/ns/user", pid.as_raw_nonzero());
            open(path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(fail)
        });
    debug_assert!(end > Instant::now());
    let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED).map_err(fail)?;
    made
}

#[expect(unsafe_code, reason = "the clone itself")]
fn clone_user_namespace() -> Result<Cloned, Errno> {
    // SAFETY: the child only closes, receives and exits.
    unsafe { sys::clone(libc::CLONE_NEWUSER as u64, None) }
}

fn lines(extents: &[Extent]) -> String {
    let line = |e: &Extent| format!("{} {} {}", e.inside, e.outside, e.count);
    extents.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn put(pid: Pid, file: &str, text: &str) -> Result<(), Error> {
    let path = format!("/proc/{}/{file}", pid.as_raw_nonzero());
    let put = || {
        let fd = open(path.as_str(), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        // The kernel takes the whole map in one write or none of it.
        write(&fd, text.as_bytes())
    };
    put().map(drop).map_err(|cause| Error::io("write id map", path.clone(), cause))
}

fn spawn(tool: &Path, pid: Pid, extents: &[Extent]) -> Result<Child, Error> {
    let mut command = Command::new(tool);
    command.arg(pid.as_raw_nonzero().to_string());
    for extent in extents {
        command.args([extent.inside, extent.outside, extent.count].map(|number| number.to_string()));
    }
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().map_err(|cause| {
        Error::io("run", tool.display().to_string(), cause).with_obstacle(Obstacle::IdMapRefused)
    })
}

fn finish(mut child: Child, tool: &Path, end: Instant) -> Result<(), Error> {
    let name = tool.display().to_string();
    let fail = |cause: std::io::Error| Error::io("wait for", name.clone(), cause);
    let raw = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pidfd =
        raw.map(|pid| pidfd_open(pid, PidfdFlags::empty())).transpose().map_err(|e| fail(e.into()))?;
    if let Some(pidfd) = pidfd {
        loop {
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let timeout = Timespec::try_from(left).map_err(|_| fail(Errno::INVAL.into()))?;
            match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout)) {
                Err(Errno::INTR) => {}
                Ok(0) => {
                    child.kill().and_then(|()| child.wait()).map_err(fail)?;
                    return Err(Error::reason("run", name, "it did not end in time"));
                }
                Ok(_) => break,
                Err(cause) => return Err(fail(cause.into())),
            }
        }
    }
    let status = child.wait().map_err(fail)?;
    if status.success() {
        return Ok(());
    }
    let mut said = String::new();
    if let Some(stderr) = child.stderr.take() {
        // What it said is for the message only, and it is one line.
        let _ = stderr.take(1024).read_to_string(&mut said);
    }
    Err(Error::reason("map ids with", name, said.trim().to_owned()).with_obstacle(Obstacle::IdMapRefused))
}
