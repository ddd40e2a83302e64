//! What runs between the clone and the agent. It is alone with a copy of the parent's memory, so nothing in this file and
//! its neighbours allocates, locks or unwinds.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open, stat};
use rustix::io::{Errno, write};
use rustix::net::{RecvFlags, SendFlags, netlink, recv, send};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit, setsid, umask};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits, set_no_new_privs,
};

use super::child_files;
use super::child_mounts;
use super::child_netlink;
use super::child_network::{self, Sockets};
use super::trees::TreeSource;
use crate::capabilities::LAST_KNOWN;
use crate::handover::{AGENT_NAME, FIRST_CLOSED_FD, LOG_FD, LOG_OUT_FD, NETWORK_FD, NULL_FD};
use crate::plan::{Limited, Step};
use crate::seccomp::Instruction;
use crate::sys;

/// The parent's word that the id maps are there.
pub(super) const GO: u8 = b'g';
/// A report of a failed step: its number and the error number, four bytes each.
pub(super) const REPORT_BYTES: usize = 8;

/// Everything the child has.
pub(super) struct Child<'a> {
    pub(super) steps: &'a [Step],
    pub(super) trees: &'a [TreeSource],
    /// `tasks` files of version 1 groups.
    pub(super) tasks: &'a [OwnedFd],
    /// The version 2 group, where the clone could not join it.
    pub(super) into: Option<BorrowedFd<'a>>,
    /// Log, configuration, agent listener, control listener.
    pub(super) descriptors: &'a [OwnedFd],
    pub(super) sync: BorrowedFd<'a>,
    /// The parent's end, which the child must not keep: it would never see the parent's death.
    pub(super) parent_end: BorrowedFd<'a>,
    pub(super) filter: &'a [Instruction],
}

/// What one step leaves for the next ones.
#[derive(Default)]
struct State {
    held: Option<OwnedFd>,
    network: Option<Sockets>,
    /// Device and inode of the agent's file.
    agent: Option<(u64, u64)>,
}

/// Takes the steps. On failure it tells the parent which one and why, and ends.
pub(super) fn run(child: &Child<'_>) -> ! {
    let mut state = State::default();
    let _ = sys::close_raw(child.parent_end.as_raw_fd());
    for (number, step) in child.steps.iter().enumerate() {
        if let Err(errno) = take(child, step, &mut state) {
            let mut packet = [0; REPORT_BYTES];
            packet[..4].copy_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
            packet[4..].copy_from_slice(&errno.raw_os_error().cast_unsigned().to_le_bytes());
            // After `Descriptors` the socket is at another number as well; both are the same socket.
            let _ = send(child.sync, &packet, SendFlags::NOSIGNAL);
            sys::exit(1);
        }
    }
    sys::exit(1)
}

fn take(child: &Child<'_>, step: &Step, state: &mut State) -> Result<(), Errno> {
    match step {
        Step::ResetSignals => {
            sys::reset_signals();
            umask(Mode::from_raw_mode(0o022));
            Ok(())
        }
        Step::JoinCgroups => join(child),
        Step::OomScore(score) => put(c"/proc/self/oom_score_adj", score.to_bytes()),
        Step::NewSession => setsid().map(drop),
        Step::NewCgroupNamespace => sys::unshare_cgroup(),
        Step::Hostname(name) => rustix::system::sethostname(name.to_bytes()),
        Step::LoopbackUp => sys::loopback_up(),
        Step::AwaitMaps => await_maps(child.sync),
        Step::BecomeRoot => {
            sys::clear_groups()?;
            sys::set_ids(0, 0)
        }
        Step::NotDumpable => set_dumpable_behavior(DumpableBehavior::NotDumpable),
        Step::PrivateMounts => child_mounts::private(),
        Step::EnterStage => child_mounts::enter_stage(),
        Step::Dir { path, mode } => child_files::dir(path, *mode),
        Step::File { path, mode, bytes } => child_files::file(path, *mode, bytes),
        Step::Link { target, path } => child_files::link(target, path),
        Step::Mount { kind, options, attrs, target } => child_mounts::mount(kind, options, *attrs, target),
        Step::Bind(bind) => child_mounts::bind(child.trees, bind),
        Step::Restrict { path, attrs } => child_mounts::restrict(path, *attrs),
        Step::Setting { path, value } => match put(path, value.to_bytes()) {
            Err(Errno::NOENT) => Ok(()),
            done => done,
        },
        Step::SettingIfMay { path, value } => match put(path, value.to_bytes()) {
            Err(Errno::NOENT | Errno::ACCESS | Errno::PERM) => Ok(()),
            done => done,
        },
        Step::HoldSetting { path } => {
            state.held = match open(path.as_c_str(), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
                Err(Errno::NOENT) => None,
                held => Some(held?),
            };
            Ok(())
        }
        Step::LastSetting { value } => match state.held.take() {
            Some(held) => write(&held, value.to_bytes()).map(drop),
            None => Ok(()),
        },
        Step::LeaveHost => child_mounts::leave_host(),
        Step::OwnFile { path, bytes } => {
            child_files::own_file(path, bytes);
            Ok(())
        }
        Step::OwnFolder { path, uid, gid } => child_files::own_folder(path, *uid, *gid),
        Step::Limit { resource, value } => limit(*resource, *value),
        Step::Descriptors => descriptors(child, state.network.as_ref()),
        Step::DropCapabilities { keep } => drop_capabilities(*keep),
        Step::NoNewPrivileges => set_no_new_privs(true),
        Step::Landlock { abi } => {
            let folder =
                |path: &CStr| open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
            // The kernel opens queues in a mount of its own, which lies beneath no folder; its top is the same, though.
            let (root, queues) = (folder(c"/")?, folder(c"/dev/mqueue")?);
            sys::confine_to(&[root.as_fd(), queues.as_fd()], *abi)
        }
        Step::Filter => sys::install_filter(child.filter),
        Step::NoteAgent(path) => {
            state.agent = Some(identity(path)?);
            Ok(())
        }
        Step::Execute(path) => {
            // It becomes the first process and reads the configuration, so it must be ours whatever was mounted since.
            if state.agent != Some(identity(path)?) {
                return Err(Errno::STALE);
            }
            send(child.sync, &[GO], SendFlags::NOSIGNAL)?;
            Err(sys::exec(path, AGENT_NAME))
        }
        Step::Route(message) => child_netlink::batch(None, message),
        Step::PacketFilter(batch) => child_netlink::batch(Some(netlink::NETFILTER), batch),
        Step::NetworkSockets => {
            let sockets = child_network::open()?;
            child_network::hand_out(child.sync, &sockets)?;
            state.network = Some(sockets);
            Ok(())
        }
        Step::Done => {
            send(child.sync, &[GO], SendFlags::NOSIGNAL)?;
            sys::exit(0)
        }
    }
}

/// Device and inode of what would be executed. Where some mount is writable the filter allows no newer way to look.
fn identity(path: &CStr) -> Result<(u64, u64), Errno> {
    stat(path).map(|data| (data.st_dev, data.st_ino))
}

fn join(child: &Child<'_>) -> Result<(), Errno> {
    if let Some(group) = child.into {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let procs = rustix::fs::openat(group, c"cgroup.procs", flags, Mode::empty())?;
        write(&procs, b"0")?;
    }
    for tasks in child.tasks {
        write(tasks, b"0")?;
    }
    Ok(())
}

fn await_maps(sync: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut word = [0; 1];
    loop {
        match recv(sync, &mut word[..], RecvFlags::empty()) {
            Ok((_, 1)) if word[0] == GO => return Ok(()),
            Err(Errno::INTR) => {}
            // The parent is gone: nobody is there to tell.
            Ok(_) => sys::exit(1),
            Err(cause) => return Err(cause),
        }
    }
}

pub(super) fn put(path: &CStr, bytes: &[u8]) -> Result<(), Errno> {
    let file = open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    write(&file, bytes).map(drop)
}

fn limit(resource: Limited, value: u64) -> Result<(), Errno> {
    let resource = match resource {
        Limited::OpenFiles => Resource::Nofile,
        Limited::FileSize => Resource::Fsize,
        Limited::CoreSize => Resource::Core,
        Limited::Processes => Resource::Nproc,
        Limited::PendingSignals => Resource::Sigpending,
        Limited::MessageBytes => Resource::Msgqueue,
        Limited::LockedBytes => Resource::Memlock,
        Limited::RealTime => Resource::Rtprio,
        Limited::Nice => Resource::Nice,
    };
    let now = rustix::process::getrlimit(resource);
    // Raising a hard limit needs a right of the host's; staying below it is what was asked for anyway.
    let value = now.maximum.map_or(value, |hard| hard.min(value));
    setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
}

fn descriptors(child: &Child<'_>, network: Option<&Sockets>) -> Result<(), Errno> {
    let [log, rest @ ..] = child.descriptors else { return Err(Errno::INVAL) };
    {
        // Closed before everything is: a descriptor that owns a closed number is a fatal error in debug builds.
        let null = open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        sys::dup_onto(null.as_fd(), NULL_FD)?;
    }
    sys::dup_onto(log.as_fd(), LOG_OUT_FD)?;
    sys::dup_onto(log.as_fd(), LOG_FD)?;
    for (fd, number) in rest.iter().zip(LOG_FD + 1..) {
        sys::dup_onto(fd.as_fd(), number)?;
    }
    let mut first_closed = NETWORK_FD;
    if let Some(sockets) = network {
        for (socket, number) in sockets.iter().zip(NETWORK_FD..) {
            sys::dup_onto(socket.as_fd(), number)?;
        }
        first_closed = FIRST_CLOSED_FD;
    }
    // The socket to the parent closes on exec, as everything else of ours; what the caller's process had open without
    // that mark is closed here.
    sys::close_from(first_closed, child.sync.as_raw_fd())
}

fn drop_capabilities(keep: u64) -> Result<(), Errno> {
    for number in 0..64_u8 {
        if keep >> number & 1 == 1 {
            continue;
        }
        let Some(capability) = CapabilitySet::from_bits(1 << number) else { break };
        match remove_capability_from_bounding_set(capability) {
            // The kernel has no more of them.
            Err(Errno::INVAL) if number > 0 => {
                if number > LAST_KNOWN {
                    break;
                }
            }
            done => done?,
        }
    }
    clear_ambient_capability_set()?;
    let keep = CapabilitySet::from_bits_retain(keep);
    if keep.is_empty() {
        // No program gets rights for being uid 0 in the one-id mode, where there is none anyway.
        let bits = CapabilitiesSecureBits::NO_ROOT | CapabilitiesSecureBits::NO_ROOT_LOCKED;
        set_capabilities_secure_bits(bits)?;
    }
    set_capabilities(
        None,
        CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() },
    )
}
