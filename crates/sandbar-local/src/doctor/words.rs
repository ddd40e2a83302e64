//! From what stood in the way of a launch to the fault that says it: for `doctor` and for the errors of a creation, so that both have the same words.

use std::path::Path;

use sandbar_core::{Error, ErrorKind};
use sandbar_engine::Obstacle;

use super::condition::Fault;
use super::examine::{LEAST_BYTES, LEAST_INODES};
use super::table::{self, limits, place, tiers, walls};
use super::wording::{Facts, bounded};

/// How errors name a condition as what they are about.
const RESOURCE: &str = "host condition `";

/// The fault behind an obstacle. Several settings lead to the same answer of the kernel's, so this looks at them.
pub(crate) fn fault_of(obstacle: Obstacle) -> Option<&'static Fault> {
    Some(match obstacle {
        Obstacle::NamespacesOff { setting } => off_by(setting),
        Obstacle::NamespacesRefused | Obstacle::NamespacesPowerless => why_refused(obstacle),
        Obstacle::NamespacesUsedUp if setting("/proc/sys/user/max_user_namespaces") == Some(0) => {
            &walls::USERNS_OFF
        }
        Obstacle::NamespacesUsedUp => &walls::USERNS_USED_UP,
        Obstacle::CallMissing => &walls::KERNEL_CALLS,
        Obstacle::ProcessesUsedUp => &limits::PROCESSES_USED_UP,
        Obstacle::ProcfsCovered => &walls::PROCFS_COVERED,
        Obstacle::OverlayMissing => &walls::OVERLAY_MISSING,
        Obstacle::OverlayRefused => &walls::OVERLAY_REFUSED,
        Obstacle::IdMappedMountsMissing => &walls::MAPPED_MOUNTS_MISSING,
        Obstacle::RootPowerless => &walls::ROOT_CAPABILITIES,
        Obstacle::IdsNotMapped => &walls::ROOT_IDS,
        Obstacle::IdMapRefused => &walls::SUBIDS_REFUSED,
        Obstacle::FilterMissing => &walls::SECCOMP_MISSING,
        Obstacle::PacketFilterMissing => &tiers::PACKET_FILTER_MISSING,
        Obstacle::DescriptorsUsedUp => &limits::OPEN_FILES_NONE,
        Obstacle::MountsUsedUp => &limits::MOUNTS_FEW,
        Obstacle::GroupsRefuse => &limits::CGROUPS_REFUSED,
        Obstacle::DiskFull => &place::DISK_FULL,
        Obstacle::FileSize => &limits::FILE_SIZE_NONE,
        _ => return None,
    })
}

/// As [`fault_of`], with a look at the file system of the data folder where that matters.
pub(crate) fn fault_at(obstacle: Obstacle, home: &Path) -> Option<&'static Fault> {
    match obstacle {
        Obstacle::OverlayRefused if is_on_overlay(home) == Some(true) => Some(&walls::OVERLAY_ON_OVERLAY),
        Obstacle::IdMappedMountsMissing if is_on_overlay(home) == Some(true) => {
            Some(&walls::OVERLAY_ON_OVERLAY)
        }
        Obstacle::IdMappedMountsMissing if is_on_overlay(Path::new("/usr")) == Some(true) => {
            Some(&walls::MAPPED_PROGRAMS)
        }
        Obstacle::IdMapRefused if !newuidmap_has_power() => Some(&walls::SUBIDS_POWERLESS),
        Obstacle::DiskFull if has_no_inodes(home) => Some(&place::INODES_NONE),
        _ => fault_of(obstacle),
    }
}

/// The error of an operation that a fault of this machine's stopped: what `doctor` says about it, and what was tried.
pub(crate) fn explain(error: &Error, fault: &'static Fault, facts: &Facts) -> Error {
    let message = format!("{}: {}", fault.says, error.message());
    let kind = match error.kind() {
        kind @ (ErrorKind::LimitExceeded | ErrorKind::Unsupported) => kind,
        _ => ErrorKind::Config,
    };
    let mut told = match error.feature() {
        Some(feature) => Error::unsupported(error.operation(), feature, fault.says),
        None => Error::new(kind, error.operation(), message),
    }
    .with_backend(crate::config::BACKEND)
    .with_retry(error.retry())
    .with_hint(hint(fault, facts));
    for left in error.left_behind() {
        told = told.with_left_behind(left.clone());
    }
    about(told, fault)
}

/// Names the condition of `fault` as what the error is about.
pub(crate) fn about(error: Error, fault: &Fault) -> Error {
    error.with_resource(format!("{RESOURCE}{}`", table::condition_of(fault).id))
}

/// The fault that an error of [`explain`]'s tells of. It is found by its words, which outlive the way from one process to another.
pub(crate) fn fault_in(error: &Error) -> Option<&'static Fault> {
    let id = error.resource()?.strip_prefix(RESOURCE)?.strip_suffix('`')?;
    let condition = table::CONDITIONS.iter().find(|condition| condition.id == id)?;
    condition.faults.iter().find(|fault| error.message().contains(fault.says)).copied()
}

/// Makes a failed creation tell what `doctor` tells, where a fault of this machine's is behind it. Only for failures: it looks at this machine.
pub(crate) fn told(error: Error, home: &Path, helper: Option<&Path>) -> Error {
    let obstacle = match std::error::Error::source(&error) {
        Some(source) => match source.downcast_ref::<sandbar_engine::Error>() {
            Some(engine) => engine.obstacle(),
            None => source.downcast_ref::<std::io::Error>().and_then(of_file_system),
        },
        None => None,
    };
    let unmapped = rustix::process::geteuid().is_root() && has_ids() == Some(false);
    let fault = obstacle.and_then(|obstacle| fault_at(obstacle, home));
    // Whatever failed first: nothing of it can work there.
    match if unmapped { Some(&walls::ROOT_IDS) } else { fault } {
        Some(fault) => explain(&error, fault, &Facts::read(home, helper)),
        None => error,
    }
}

fn of_file_system(cause: &std::io::Error) -> Option<Obstacle> {
    use rustix::io::Errno;
    Some(match Errno::from_io_error(cause)? {
        Errno::NOSPC | Errno::DQUOT => Obstacle::DiskFull,
        Errno::FBIG => Obstacle::FileSize,
        Errno::MFILE | Errno::NFILE => Obstacle::DescriptorsUsedUp,
        _ => return None,
    })
}

/// The remedies in one line.
pub(crate) fn hint(fault: &Fault, facts: &Facts) -> String {
    let remedies: Vec<String> =
        facts.remedies(fault).into_iter().map(|command| format!("`{command}`")).collect();
    match remedies.as_slice() {
        [] => "`sandbar doctor` shows what this machine lacks".to_owned(),
        all => format!("run {}; `sandbar doctor` shows all that this machine lacks", all.join(", then ")),
    }
}

fn off_by(setting: &str) -> &'static Fault {
    match setting {
        "user.max_user_namespaces" => &walls::USERNS_OFF,
        "kernel.unprivileged_userns_clone" => &walls::USERNS_UNPRIVILEGED,
        _ => &walls::USERNS_NOT_BUILT,
    }
}

fn why_refused(obstacle: Obstacle) -> &'static Fault {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root && setting("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
        return &walls::USERNS_UNPRIVILEGED;
    }
    if !is_root && setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        return &walls::USERNS_APPARMOR;
    }
    if obstacle == Obstacle::NamespacesRefused && is_in_chroot() {
        return &walls::USERNS_CHROOT;
    }
    if is_filtered() {
        return &walls::USERNS_FILTERED;
    }
    &walls::USERNS_REFUSED
}

/// Whether the ids of sandboxes have a place in the user namespace that this is; `None` where that can't be read.
pub(super) fn has_ids() -> Option<bool> {
    let has = |path: &str| {
        Some(bounded(path).ok()?.lines().any(|line| {
            let mut numbers = line.split_whitespace().map(str::parse::<u64>);
            let (Some(Ok(first)), Some(Ok(_)), Some(Ok(count))) =
                (numbers.next(), numbers.next(), numbers.next())
            else {
                return false;
            };
            let [wanted, end] = crate::home::ID_RANGES;
            first <= u64::from(wanted) && first + count >= u64::from(end)
        }))
    };
    Some(has("/proc/self/uid_map")? && has("/proc/self/gid_map")?)
}

/// Whether a filter of system calls is on this process.
pub(super) fn is_filtered() -> bool {
    let status = bounded("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
}

/// In a chroot the root folder is not the top of a mount, so no mount is at `/`. One made on a mount of its own is not told apart.
fn is_in_chroot() -> bool {
    bounded("/proc/self/mountinfo").is_ok_and(|mounts| {
        !mounts.is_empty() && !mounts.lines().any(|line| line.split(' ').nth(4) == Some("/"))
    })
}

/// Whether the folder, or the nearest one above it that exists, is on an overlay.
pub(super) fn is_on_overlay(folder: &Path) -> Option<bool> {
    /// `OVERLAYFS_SUPER_MAGIC` of `linux/magic.h`.
    const OVERLAY: u64 = 0x794c_7630;
    let existing = nearest(folder)?;
    let data = rustix::fs::statfs(existing).ok()?;
    Some(u64::try_from(data.f_type) == Ok(OVERLAY))
}

/// The folder itself, or the nearest one above it that exists.
pub(super) fn nearest(folder: &Path) -> Option<&Path> {
    folder.ancestors().find(|folder| folder.is_dir())
}

/// Whether it is inodes that there is no room for, and not bytes: by what `doctor` goes by, since a failed creation has tidied up.
fn has_no_inodes(home: &Path) -> bool {
    nearest(home).and_then(|folder| rustix::fs::statvfs(folder).ok()).is_some_and(|data| {
        let has_bytes = data.f_bavail.saturating_mul(data.f_frsize) >= LEAST_BYTES;
        has_bytes && data.f_files > 0 && data.f_favail < LEAST_INODES
    })
}

/// Whether `newuidmap` and `newgidmap` can do what an ordinary user can't: by the setuid bit or by a file capability, and nothing forbids that.
pub(super) fn newuidmap_has_power() -> bool {
    let host = sandbar_engine::Host::observe();
    let has = |tool: &Option<std::path::PathBuf>| {
        use std::os::unix::fs::PermissionsExt as _;
        tool.as_ref().is_some_and(|tool| {
            let setuid = std::fs::metadata(tool).is_ok_and(|meta| meta.permissions().mode() & 0o4000 != 0);
            setuid || rustix::fs::getxattr(tool, c"security.capability", &mut [0_u8; 64][..]).is_ok()
        })
    };
    has(&host.newuidmap) && has(&host.newgidmap) && !may_gain_nothing()
}

fn may_gain_nothing() -> bool {
    let status = bounded("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("NoNewPrivs:").is_some_and(|value| value.trim() == "1"))
}

/// A number in a file of the kernel's; `None` where it is not there or can't be read.
pub(super) fn setting(path: &str) -> Option<u64> {
    bounded(path).ok()?.trim().parse().ok()
}
