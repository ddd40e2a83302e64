use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, fchmod, mkdirat, openat, statat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketFlags, SocketType,
    recvmsg, send, socketpair,
};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getrlimit, pidfd_send_signal, setrlimit, waitid,
};

use super::PARKING;
use super::ceiling::Ceiling;
use super::child::{self, Child};
use super::child_network;
use super::hint::hint;
use super::maps::{MapTools, write_maps};
use super::owner::Owner;
use super::trees::{self, Trees};
use crate::error::Error;
use crate::handover::FIRST_CLOSED_FD;
use crate::ids::{ID_COUNT, IdMode};
use crate::layers::{LAYERS_MODE, layers_of};
use crate::network::{NetworkSockets, SOCKETS};
use crate::obstacle::Obstacle;
use crate::plan::{OOM_SCORE, Plan, Step};
use crate::proc_id;
use crate::spec::LAYERS_FOLDER;
use crate::subvolume;
use crate::sys::{self, Cloned};

/// A launch takes a few milliseconds; a machine that swaps may need longer, and nobody waits forever.
const LAUNCH_BOUND: Duration = Duration::from_secs(30);

/// Descriptors that a launch needs: those parked, the network's sockets, and the layers and mounts that it opens on its way.
const NEEDED_FILES: u64 = 160;

/// Namespaces made by the clone itself; the control group namespace comes later, from inside the groups.
const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS) as u64;

/// A running agent. Dropping it changes nothing: the agent lives on.
#[derive(Debug)]
pub struct Launched {
    /// PID 1 of the sandbox, as the host numbers it. A child of the caller, who reaps it.
    pub pid: Pid,
    pub pidfd: OwnedFd,
    /// See [`proc_id::start_time`].
    pub start_time: u64,
    /// With [`Network::Gateway`](crate::Network::Gateway).
    pub network: Option<NetworkSockets>,
}

/// Carries the plan out and answers once the agent is executing. Takes at most 30 seconds.
///
/// A failure leaves no process, mount or namespace; folders made for the writable layers stay in the caller's folder.
/// The error names the step, what the kernel said, and the remedy where one is known.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a plan is for one launch: its random names must not be used twice"
)]
pub fn launch(plan: Plan<'_>) -> Result<Launched, Error> {
    let end = Instant::now() + LAUNCH_BOUND;
    make_room()?;
    let layers = make_layers(&plan)?;
    let trees = trees::open_all(&plan, layers.as_fd())?;
    let mut begun = carry_out(&plan, &trees, end)?;
    let start_time = proc_id::start_time(begun.pid)?
        .ok_or_else(|| Error::reason("launch", "sandbox", "the agent is gone already"))?;
    let pid = begun.pid;
    let network = begun.network.take();
    let pidfd = begun.pidfd.take().ok_or_else(|| Error::reason("launch", "sandbox", "it is lost"))?;
    Ok(Launched { pid, pidfd, start_time, network })
}

/// Carries out a plan that ends with [`Step::Done`] and not with an agent, by the same code. Takes at most `bound`; nothing of it is left but
/// folders for the layers.
pub(crate) fn try_out(plan: &Plan<'_>, bound: Duration) -> Result<(), Error> {
    make_room()?;
    let layers = if plan.trees.is_empty() { None } else { Some(make_layers(plan)?) };
    let trees = trees::open_all(plan, layers.as_ref().map_or(plan.writable, AsFd::as_fd))?;
    carry_out(plan, &trees, Instant::now() + bound).map(drop)
}

/// Clones, and answers once the child has taken all steps but the last, which it has begun.
fn carry_out(plan: &Plan<'_>, trees: &Trees, end: Instant) -> Result<Begun, Error> {
    let (into, tasks) = match plan.cgroup {
        Some(group) => group.join_files()?,
        None => (None, Vec::new()),
    };
    let setup = |cause: Errno| Error::io("prepare descriptors for", "sandbox", cause);
    let tasks = tasks.iter().map(|file| park(file.as_fd())).collect::<Result<Vec<_>, _>>().map_err(setup)?;
    let mut descriptors = Vec::with_capacity(plan.descriptors.len());
    for fd in plan.descriptors {
        descriptors.push(park(fd).map_err(setup)?);
    }
    let (ours, theirs) = parked_pair().map_err(setup)?;

    let mut begun = match start(plan, into.as_ref())? {
        Started::Parent { pid, pidfd } => Begun { pid, pidfd: Some(pidfd), network: None },
        Started::Child { joined } => {
            let child = Child {
                steps: &plan.steps,
                trees: &trees.sources,
                tasks: &tasks,
                into: if joined { None } else { into.as_ref().map(File::as_fd) },
                descriptors: &descriptors,
                sync: theirs.as_fd(),
                parent_end: ours.as_fd(),
                filter: &plan.filter,
            };
            child::run(&child)
        }
    };
    drop(theirs);
    let made = prefer_as_victim(&plan.ids, begun.pid)
        .and_then(|()| write_maps(begun.pid, &plan.ids, &MapTools::of(&plan.host), end))
        .and_then(|()| trees.map(begun.pid))
        .and_then(|()| {
            send(&ours, &[child::GO], SendFlags::NOSIGNAL)
                .map(drop)
                .map_err(|cause| Error::io("start", "sandbox", cause))
        });
    // Where the child has failed at an early step, its report says more than our own failure to go on.
    let wait = if made.is_ok() { end } else { Instant::now() };
    match wait_report(&ours, wait, &mut begun.network)? {
        Report::Executing => Ok(begun),
        Report::Failed { step, errno } => Err(step_error(&plan.steps, step, errno)),
        report @ (Report::Gone | Report::Nothing) => {
            made?;
            let why = if matches!(report, Report::Gone) {
                "the first process was killed while it was being set up"
            } else {
                "the first process did not get ready in time"
            };
            Err(Error::reason("launch", "sandbox", why))
        }
    }
}

/// Sees that there are numbers for the descriptors, below the hard limit.
fn make_room() -> Result<(), Error> {
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|soft| soft >= NEEDED_FILES) {
        return Ok(());
    }
    let room = Rlimit { current: Some(NEEDED_FILES), maximum: now.maximum };
    setrlimit(Resource::Nofile, room).map_err(|_| {
        let hard = now.maximum.unwrap_or(0);
        Error::reason(
            "launch",
            "sandbox",
            format!("this process may open {hard} files, a launch needs {NEEDED_FILES}"),
        )
        .with_obstacle(Obstacle::DescriptorsUsedUp)
    })
}

enum Started {
    Parent { pid: Pid, pidfd: OwnedFd },
    Child { joined: bool },
}

/// Clones, in the version 2 group where that is possible. Some kernels and containers refuse the group in the clone;
/// then the child moves itself.
fn start(plan: &Plan<'_>, into: Option<&File>) -> Result<Started, Error> {
    let ceiling = Ceiling::lower(&plan.counted.of_owner)
        .map_err(|cause| Error::io("lower the limits of", "sandbox", cause))?;
    let owner =
        Owner::assume(&plan.ids).map_err(|cause| Error::io("take the owner id of", "sandbox", cause))?;
    let mut joined = into.is_some();
    let mut cloned = clone(into.map(|file| file.as_fd()));
    if joined && matches!(cloned, Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP)) {
        joined = false;
        cloned = clone(None);
    }
    match cloned {
        Ok(Cloned::Parent { pid, pidfd }) => Ok(Started::Parent { pid, pidfd }),
        Ok(Cloned::Child) => {
            // The child goes on as it was made; only the parent changes back.
            std::mem::forget((owner, ceiling));
            Ok(Started::Child { joined })
        }
        Err(cause) => Err(Error::io("make namespaces for", "sandbox", cause)),
    }
}

/// A score written with `CAP_SYS_RESOURCE` (some containers' root lacks it) is the least that the process and its children can give themselves later. Elsewhere the
/// child's own step has to do.
fn prefer_as_victim(ids: &IdMode, pid: Pid) -> Result<(), Error> {
    if !matches!(ids, IdMode::Range { .. }) {
        return Ok(());
    }
    let path = format!("/proc/{}/oom_score_adj", pid.as_raw_nonzero());
    std::fs::write(&path, OOM_SCORE.to_bytes())
        .map_err(|cause| Error::io("set the out-of-memory preference", path, cause))
}

#[expect(unsafe_code, reason = "the clone itself")]
fn clone(into: Option<BorrowedFd<'_>>) -> Result<Cloned, Errno> {
    // SAFETY: the child goes straight to `child::run`, which neither allocates nor takes a lock and never returns.
    unsafe { sys::clone(NAMESPACES, into) }
}

/// A child on its way. It is ended and reaped unless its descriptor is taken, whichever way the launch is left.
struct Begun {
    pid: Pid,
    pidfd: Option<OwnedFd>,
    network: Option<NetworkSockets>,
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(pidfd) = &self.pidfd {
            // It may be dead already; reaping is what matters, and after a kill it does not block for long.
            let _ = pidfd_send_signal(pidfd, Signal::KILL);
            let _ = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
        }
    }
}

/// The folders of the writable layers, owned by the sandbox's root.
fn make_layers(plan: &Plan<'_>) -> Result<OwnedFd, Error> {
    let owner = match &plan.ids {
        IdMode::Range { base, .. } => Some(*base),
        IdMode::Subordinate(_) | IdMode::Single => None,
    };
    let folder = own_folder(plan.writable, LAYERS_FOLDER, LAYERS_MODE, owner)?;
    for layer in layers_of(&plan.ids) {
        own_folder(folder.as_fd(), layer.name, layer.mode, owner)?;
    }
    Ok(folder)
}

fn own_folder(
    parent: BorrowedFd<'_>,
    name: &'static str,
    mode: u32,
    owner: Option<u32>,
) -> Result<OwnedFd, Error> {
    let fail = |cause: Errno| Error::io("make folder of writable layers", name, cause);
    let fresh = match make(parent, name, mode) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(cause) => return Err(fail(cause)),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(parent, name, flags, Mode::empty()).map_err(fail)?;
    if fresh {
        // The umask has taken bits away.
        fchmod(&folder, Mode::from_raw_mode(mode)).map_err(fail)?;
        if let Some(id) = owner {
            rustix::fs::fchown(&folder, Some(Uid::from_raw(id)), Some(Gid::from_raw(id))).map_err(fail)?;
        }
    } else if let Some(id) = owner {
        let data = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(fail)?;
        // What is root's inside may give its own root folder to another user of its range.
        if !(id..id + ID_COUNT).contains(&data.st_uid) {
            return Err(Error::reason(
                "use folder of writable layers",
                name,
                "it belongs to another id range than the sandbox",
            ));
        }
    }
    Ok(folder)
}

/// The folder of all layers is a subvolume where it can be: a fork then takes a snapshot of it.
fn make(parent: BorrowedFd<'_>, name: &str, mode: u32) -> Result<(), Errno> {
    if name == LAYERS_FOLDER && subvolume::create(parent, &CString::new(name).map_err(|_| Errno::INVAL)?)? {
        return Ok(());
    }
    mkdirat(parent, name, Mode::from_raw_mode(mode))
}

enum Report {
    Executing,
    Failed {
        step: usize,
        errno: Errno,
    },
    /// The child ended without a word.
    Gone,
    /// Nothing until the end of the time.
    Nothing,
}

/// Takes the child's words up to its end or the agent's start, and the network's sockets among them.
fn wait_report(
    socket: &OwnedFd,
    end: Instant,
    network: &mut Option<NetworkSockets>,
) -> Result<Report, Error> {
    let fail = |cause: Errno| Error::io("wait for", "sandbox", cause);
    let mut about_to_execute = false;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| fail(Errno::INVAL))?;
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return Ok(Report::Nothing),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(cause) => return Err(fail(cause)),
        }
        let mut packet = [0; child::REPORT_BYTES];
        match receive(socket, &mut packet) {
            Ok((0, _)) if about_to_execute => return Ok(Report::Executing),
            Ok((0, _)) => return Ok(Report::Gone),
            Ok((1, _)) => about_to_execute = true,
            Ok((length, sockets)) if length == child_network::WORD.len() => {
                let sockets = NetworkSockets::checked(sockets)
                    .map_err(|cause| Error::io("take over the network of", "sandbox", cause))?;
                *network = Some(sockets);
            }
            Ok(_) => {
                let word = |at: usize| {
                    u32::from_le_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]])
                };
                let errno = Errno::from_raw_os_error(i32::try_from(word(4)).unwrap_or(libc::EIO));
                return Ok(Report::Failed { step: word(0) as usize, errno });
            }
            // A reset is said once, where the child ended with our word unread, before what it had sent.
            Err(Errno::CONNRESET | Errno::INTR | Errno::AGAIN) => {}
            Err(cause) => return Err(fail(cause)),
        }
    }
}

/// Takes one packet, without waiting.
fn receive(socket: &OwnedFd, packet: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(socket, &mut [IoSliceMut::new(packet)], &mut control, flags)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok((got.bytes, descriptors))
}

fn step_error(steps: &[Step], step: usize, errno: Errno) -> Error {
    let name = steps.get(step).map_or_else(|| "set up".to_owned(), ToString::to_string);
    let hint = hint(&name, errno);
    let error = Error::io(format!("launch sandbox: {name}"), "", io::Error::from(errno));
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// No other copy of either end may stay: each side notices the other's end by it.
fn parked_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Ok((park(one.as_fd())?, park(other.as_fd())?))
}

pub(super) fn park(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    const { assert!(PARKING > FIRST_CLOSED_FD) };
    fcntl_dupfd_cloexec(fd, PARKING)
}
