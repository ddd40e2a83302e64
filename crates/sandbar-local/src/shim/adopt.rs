use std::io;
use std::path::Path;

use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sandbar_core::{ErrorKind, Result, SandboxId, State};
use sandbar_engine::cgroup::{Cgroup, Layout};
use sandbar_engine::network::NetworkSockets;
use sandbar_observe::Role;

use super::guard::Guard;
use super::shared::Shared;
use super::{log, sleep};
use crate::audit::{self, AuditedEnd, Left};
use crate::ctl;
use crate::error::{engine, fail, gone, io_error, not_running, unknown};
use crate::home::{Folder, Home, Lock, StoredRecord};
use crate::observe::is_over;
use crate::{store, teardown};

const ADOPT: &str = "adopt";

/// Takes over a sandbox whose shim is gone; `None` means that another shim guards it. One that should not be there any more is destroyed instead.
pub(super) fn adopt(home: &Path, id: &SandboxId) -> Result<Option<Guard>> {
    let blind = |cause: &dyn std::fmt::Display| unknown(ADOPT, id.as_str(), cause);
    let home = Home::open(home)?.ok_or_else(|| gone(ADOPT, id.as_str()))?;
    let folder =
        Folder::open(&home, id).map_err(|cause| blind(&cause))?.ok_or_else(|| gone(ADOPT, id.as_str()))?;
    let Some(lock) = Lock::take(&folder).map_err(|cause| blind(&cause))? else { return Ok(None) };
    if !folder.is_in_place(&home).map_err(|cause| blind(&cause))? {
        return Err(gone(ADOPT, id.as_str()));
    }
    let record = folder.record().map_err(|cause| blind(&cause))?.ok_or_else(|| gone(ADOPT, id.as_str()))?;
    if let Some(why) = is_over(&record).map_err(|cause| blind(&cause))? {
        return Err(remove(ADOPT, &home, &folder, record, &lock, why));
    }
    let mut record = record;
    let pidfd = agent(&record).map_err(|cause| blind(&cause))?;
    let Some(pidfd) = pidfd else {
        return Err(not_running(ADOPT, id.as_str(), State::Stopped, record.reason.as_deref()));
    };
    store::recover(&home, &folder, &mut record)?;
    if record.state == State::Running {
        // A shim that ended in the middle of a fork left it standing still; one that was to follow it ended by itself.
        pidfd_send_signal(&pidfd, Signal::CONT).map_err(|cause| blind(&cause))?;
    }
    log::redirect(&folder);
    record.private.shim = super::create::own_mark()?;
    match folder.write_record(&record) {
        Ok(()) => {}
        // Only the mark of this shim is new, and the lock says of it what matters; whatever is written next has it. A full disk must not
        // keep anybody out of a sandbox that lives.
        Err(cause) if matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
            log::say(&format_args!("the record does not name this shim yet: {cause}"));
        }
        Err(cause) => {
            let place = format!("`{}/record.json`", home.folder_path(id).display());
            return Err(io_error(ADOPT, &place, cause));
        }
    }
    let cgroup = Cgroup::reopen(&Layout::observe(), id.as_str()).map_err(|cause| engine(ADOPT, cause))?;
    let shared = Shared::new(home, folder, lock, record, cgroup, pidfd);
    sleep::recover(&shared)?;
    // One that sleeps answers when it wakes up.
    let network = if shared.look(|record| record.state == State::Sleeping) {
        None
    } else {
        ask_agent(&shared.folder, shared.look(|record| record.egress.gateway.is_some()))?
    };
    shared.look(audit::adopted);
    Ok(Some(Guard::of_adopted(shared, network)))
}

/// Destroys one that should not be there any more; the answer is what to tell who asked for it.
pub(super) fn remove(
    operation: &'static str,
    home: &Home,
    folder: &Folder,
    record: StoredRecord,
    lock: &Lock,
    why: &'static str,
) -> sandbar_core::Error {
    let ending = teardown::Ending::of_found(Some(&record));
    let told = AuditedEnd::begin(Some(&record), Role::Guard, ending.cause);
    let ended = teardown::tear_down(home, folder, Some(record), lock, teardown::Groups::Unknown, ending);
    told.over(&ended, Left::Nothing, Some(why));
    match ended {
        Ok(()) => gone(operation, folder.id().as_str()).with_hint(format!("it was destroyed: {why}")),
        Err(error) => error,
    }
}

/// The agent, if it lives.
fn agent(record: &StoredRecord) -> std::io::Result<Option<std::os::fd::OwnedFd>> {
    let Some(mark) = &record.private.agent else { return Ok(None) };
    let Some(pid) = mark.pid()? else { return Ok(None) };
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(rustix::io::Errno::SRCH) => return Ok(None),
        Err(cause) => return Err(cause.into()),
    };
    // The descriptor was opened before this look, so it names the process that is looked at.
    Ok(mark.lives()?.then_some(pidfd))
}

/// Gets the listeners back from the agent. They are not kept: a listener that outlives the agent would keep callers waiting for answers that nobody
/// gives; having got them proves that the sockets in the folder lead to the agent. The sockets of the network are kept, where there are any.
fn ask_agent(folder: &Folder, has_network: bool) -> Result<Option<NetworkSockets>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|cause| io_error(ADOPT, "the shim's runtime", cause))?;
    let broken = |why: String| {
        fail(
            ErrorKind::Unavailable,
            ADOPT,
            format!("the agent of sandbox `{}` does not hand over: {why}", folder.id()),
        )
        .with_hint("destroy the sandbox")
    };
    let ask = |op: ctl::Op| match runtime.block_on(ctl::ask(folder, &op, None)) {
        Ok(ctl::Outcome::Done(received)) => Ok(received),
        Ok(ctl::Outcome::No(why)) => Err(broken(why)),
        Err(failure) => Err(broken(failure.to_string())),
    };
    let gave = |cause: io::Error| broken(format!("it gave {cause}"));
    ctl::checked_listeners(ask(ctl::Op::Listeners)?.as_slice()).map_err(gave)?;
    if !has_network {
        return Ok(None);
    }
    ctl::checked_network(ask(ctl::Op::Network)?).map(Some).map_err(gave)
}
