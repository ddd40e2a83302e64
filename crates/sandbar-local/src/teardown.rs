//! The end of a sandbox, whoever brings it about: its shim, the next command that finds it without one, or the roll-back of its creation.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sandbar_core::{EndCause, Error, ErrorKind, Result, State, UsageEntry};
use sandbar_engine::Host;
use sandbar_engine::IdMode;
use sandbar_engine::cgroup::{Cgroup, Layout};

use crate::ctl;
use crate::error::{fail, io_error};
use crate::home::{AgentMark, Folder, Home, Lock, StoredRecord, now};
use crate::wait;

/// How long killed processes may take to end. The kernel ends them at once, but one that sleeps in a file system may keep it waiting.
const DEATH: Duration = Duration::from_secs(20);
/// How long control groups may take to be empty after that.
const EMPTY: Duration = Duration::from_secs(10);

/// The control groups of a sandbox.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Groups<'a> {
    /// These, or none.
    Known(Option<&'a Cgroup>),
    /// They have to be looked for.
    Unknown,
}

/// What is written down of a sandbox that ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ending {
    /// What ended it; `None` for one that was never ready.
    pub(crate) cause: Option<EndCause>,
    /// Bytes of disk that it holds, where somebody counted them.
    pub(crate) disk_bytes: Option<u64>,
    /// Whether its layers may serve another sandbox, should they be as they were made: where nobody outside can have got hold of a descriptor of theirs.
    pub(crate) layers: Layers,
    /// The latest that it can have ended, where that is before now.
    pub(crate) latest: Option<Timestamp>,
}

/// What is done with writable layers that nothing was written to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Layers {
    #[default]
    Removed,
    Kept,
}

impl Ending {
    /// Of a sandbox that should not be there any more, by its record.
    pub(crate) fn of_found(record: Option<&StoredRecord>) -> Self {
        let owner = record.and_then(|record| record.private.owner.as_ref());
        let cause = match record {
            Some(record) if record.is_expired() => EndCause::Deadline,
            _ if owner.is_some_and(|owner| owner.lives().is_ok_and(|lives| !lives)) => EndCause::OwnerGone,
            _ => EndCause::Unknown,
        };
        Self { cause: Some(cause), ..Self::default() }
    }
}

/// Ends the sandbox in `folder` and deletes what it had. Done only when everything is gone; what is left is in the error. The lock shows that
/// nobody else acts on it.
pub(crate) fn tear_down(
    home: &Home,
    folder: &Folder,
    record: Option<StoredRecord>,
    _lock: &Lock,
    groups: Groups<'_>,
    ending: Ending,
) -> Result<()> {
    // Readers learn first. A full disk must not keep a sandbox alive, so a record that can't be written is passed over.
    if let Some(mut record) = record.clone().filter(|record| record.state != State::Destroying) {
        record.state = State::Destroying;
        let _ = folder.write_record(&record);
    }
    let mark = record.as_ref().and_then(|record| record.private.agent.as_ref());
    let found = match groups {
        Groups::Known(_) => None,
        Groups::Unknown => Cgroup::reopen(&Layout::observe(), folder.id().as_str())
            .map_err(|cause| may_still_run(folder, &cause))?,
    };
    let group = match groups {
        Groups::Known(group) => group,
        Groups::Unknown => found.as_ref(),
    };
    // Where somebody watched, its end is now, whatever is gone already.
    let is_unseen =
        matches!(groups, Groups::Unknown) && mark.is_some_and(|mark| mark.lives().is_ok_and(|lives| !lives));
    let mounts = mark.and_then(Mounts::hold);
    end_processes(folder, mark, group)?;
    if let Some(other) = record.as_ref().and_then(|record| record.private.pending.as_ref()?.to_end()) {
        end_agent(other).map_err(|cause| may_still_run(folder, &cause))?;
    }
    let unmounting = mounts.map(Mounts::let_go);
    if let Some(record) = &record {
        // Nobody saw when it ended; its agent lets none live longer than its deadline.
        let latest = record.deadline.filter(|_| is_unseen);
        write_usage(home, record, group, Ending { latest, ..ending });
    }

    let mut left = Vec::new();
    if let Some(group) = group
        && let Err(cause) = group.remove(EMPTY)
    {
        left.push(format!("control groups of `{}` ({cause})", folder.id()));
    }
    if let Err(cause) = release_slots(home, folder, record.as_ref()) {
        left.push(format!("id range of `{}` ({cause})", folder.id()));
    }
    if let Err(cause) = release_names(home, folder, record.as_ref()) {
        left.push(format!("name of `{}` ({cause})", folder.id()));
    }
    let mode = record.map_or_else(any_mode, |record| record.private.ids);
    if let Err(cause) = delete_folder(home, folder, &mode, ending.layers, unmounting) {
        left.push(cause);
    }
    report(folder, left)
}

/// Deletes what an interrupted destruction left in the trash, unless somebody is at it.
pub(crate) fn empty_trash(home: &Home, id: &sandbar_core::SandboxId) -> Result<()> {
    let busy = |cause: rustix::io::Errno| {
        io_error("clean up", &format!("`{}`", home.trash_path(id).display()), cause)
    };
    let Some(dir) = home.open_trash(id).map_err(busy)? else { return Ok(()) };
    if flock(&dir, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(());
    }
    match home.empty_trash(id, &any_mode()) {
        Ok(()) => Ok(()),
        Err(_) if !home.is_trashed(id).map_err(busy)? => Ok(()),
        Err(cause) => {
            let place = format!("`{}`", home.trash_path(id).display());
            Err(io_error("clean up", &place, cause).with_left_behind(place))
        }
    }
}

/// Writes down what the sandbox used. One that stopped before was written down then; where it can't be, a full disk must not keep it alive.
pub(crate) fn write_usage(home: &Home, record: &StoredRecord, group: Option<&Cgroup>, ending: Ending) {
    let (Some(cause), Some(started_at)) = (ending.cause, record.started_at) else { return };
    if record.state == State::Stopped {
        return;
    }
    let stats = group.map(Cgroup::stats).unwrap_or_default();
    let ended_at = ending.latest.map_or_else(now, |latest| latest.min(now())).max(started_at);
    let entry = UsageEntry {
        version: UsageEntry::VERSION,
        id: record.id.clone(),
        name: record.name.clone(),
        created_at: record.created_at,
        started_at,
        ended_at,
        cause,
        wall_seconds: ended_at.duration_since(started_at).as_secs_f64(),
        cpu_seconds: stats.cpu_usec.map(|usec| Duration::from_micros(usec).as_secs_f64()),
        memory_peak_bytes: stats.memory_peak_bytes,
        disk_bytes: ending.disk_bytes,
    };
    if let Err(cause) = home.add_usage(&entry) {
        // Not by `eprintln!`: on a full disk, where this and the log's write fail together, it would end the process in the middle of this.
        let _ =
            writeln!(std::io::stderr(), "sandbar: the usage of `{}` is not written down: {cause}", record.id);
    }
}

/// Ends every process of the sandbox and waits for their end.
fn end_processes(folder: &Folder, mark: Option<&AgentMark>, group: Option<&Cgroup>) -> Result<()> {
    let blind = |cause: &dyn std::fmt::Display| may_still_run(folder, cause);
    if let Some(group) = group {
        // Where this does not reach them, the end of the first process does.
        let _ = group.kill(Duration::ZERO);
    }
    if let Some(mark) = mark {
        return end_agent(mark).map_err(|cause| blind(&cause));
    }
    // The shim died between the launch and its next record, or never launched: the listeners tell.
    let silent = wait::until(DEATH, || Ok::<_, std::convert::Infallible>(!ctl::tell_shutdown(folder)))
        .unwrap_or(false);
    let Some(group) = group else {
        return if silent { Ok(()) } else { Err(blind(&"the agent does not end")) };
    };
    let empty = wait::until(DEATH, || group.processes().map(|pids| pids.is_empty()))
        .map_err(|cause| blind(&cause))?;
    if empty { Ok(()) } else { Err(blind(&"its control group is not empty")) }
}

/// Kills the first process inside; the kernel ends everything else in its namespace before that one is gone.
pub(crate) fn end_agent(mark: &AgentMark) -> std::io::Result<()> {
    let Some(pid) = mark.pid()? else { return Ok(()) };
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        Err(cause) => return Err(cause.into()),
    };
    // The descriptor was opened before this look, so it names the process that is looked at.
    if !mark.lives()? {
        return Ok(());
    }
    match pidfd_send_signal(&pidfd, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(cause) => return Err(cause.into()),
    }
    let bound = Timespec { tv_sec: i64::try_from(DEATH.as_secs()).unwrap_or(i64::MAX), tv_nsec: 0 };
    let mut watched = [PollFd::new(&pidfd, PollFlags::IN)];
    let end = std::time::Instant::now() + DEATH;
    loop {
        match poll(&mut watched, Some(&bound)) {
            Ok(0) => {
                return Err(std::io::Error::other(format!("it does not end within {} s", DEATH.as_secs())));
            }
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) if std::time::Instant::now() < end => {}
            Err(cause) => return Err(cause.into()),
        }
    }
}

fn may_still_run(folder: &Folder, cause: &dyn std::fmt::Display) -> Error {
    let message = format!("processes of `{}` may still run: {cause}", folder.id());
    fail(ErrorKind::Unavailable, "destroy", message)
        .with_left_behind(format!("processes of `{}`", folder.id()))
}

fn release_slots(home: &Home, folder: &Folder, record: Option<&StoredRecord>) -> std::io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    match record.and_then(|record| record.private.slot) {
        Some(slot) => home.release_slot(folder.id(), slot)?,
        None => {
            for slot in home.slots_of(folder.id())? {
                home.release_slot(folder.id(), slot)?;
            }
        }
    }
    Ok(())
}

fn release_names(home: &Home, folder: &Folder, record: Option<&StoredRecord>) -> std::io::Result<()> {
    let names = match record {
        Some(record) => record.name.iter().cloned().collect(),
        None => home.names_of(folder.id())?,
    };
    for name in names {
        home.release_name(&name, folder.id())?;
    }
    Ok(())
}

/// The mounts of a sandbox, kept beyond its last process: taking down an overlay makes the kernel wait, in vain mostly, and that is better done beside
/// the rest than in the last breath of the process that everybody waits for.
#[derive(Debug)]
struct Mounts(OwnedFd);

impl Mounts {
    /// Without it the kernel takes them down with the first process.
    fn hold(agent: &AgentMark) -> Option<Self> {
        let path = format!("/proc/{}/ns/mnt", agent.pid().ok()??.as_raw_nonzero());
        let namespace = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        // Opened before this look, so it is that process'.
        agent.lives().is_ok_and(|lives| lives).then_some(Self(namespace))
    }

    /// Takes them down, in a thread where one can be had.
    fn let_go(self) -> Unmounting {
        Unmounting(
            std::thread::Builder::new().name("sandbar-unmount".to_owned()).spawn(move || drop(self.0)).ok(),
        )
    }
}

/// Mounts that are being taken down.
#[derive(Debug)]
struct Unmounting(Option<JoinHandle<()>>);

impl Unmounting {
    /// Waits until they are.
    fn finish(self) {
        if let Some(thread) = self.0 {
            let _ = thread.join();
        }
    }
}

/// Moves the folder out of sight and deletes it; the text says what is left.
fn delete_folder(
    home: &Home,
    folder: &Folder,
    mode: &IdMode,
    layers: Layers,
    unmounting: Option<Unmounting>,
) -> std::result::Result<(), String> {
    // Held from before it is in the trash, so that nobody else begins there.
    let _ = flock(folder, FlockOperation::NonBlockingLockExclusive);
    let place = home.folder_path(folder.id());
    home.trash(folder).map_err(|cause| format!("`{}` ({cause})", place.display()))?;
    // What the overlays do not know of.
    folder.remove_files();
    if let Some(unmounting) = unmounting {
        unmounting.finish();
    }
    if layers == Layers::Kept {
        // Whatever does not fit, or fails, leaves them where they are, to be removed with the rest.
        let _ = home.keep_layers(folder, mode);
    }
    home.empty_trash(folder.id(), mode)
        .map_err(|cause| format!("`{}` ({cause})", home.trash_path(folder.id()).display()))
}

/// How ids were mapped where no record tells: root may delete anything, and an ordinary user has one best way.
pub(crate) fn any_mode() -> IdMode {
    let host = Host::observe();
    if host.needs_range() { IdMode::range(Home::slot_base(0)) } else { host.user_id_mode() }
}

fn report(folder: &Folder, left: Vec<String>) -> Result<()> {
    if left.is_empty() {
        return Ok(());
    }
    let message = format!("sandbox `{}` is ended, but not everything could be removed", folder.id());
    let error: Error = fail(ErrorKind::Unexpected, "destroy", message)
        .with_hint("remove what is named, or try again: the next create or destroy does so, too");
    Err(left.into_iter().fold(error, Error::with_left_behind))
}
