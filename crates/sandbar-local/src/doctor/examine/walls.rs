use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use sandbar_engine::host::{self, UserNamespaces};
use sandbar_engine::{Error, Obstacle};

use super::Look;
use crate::doctor::condition::Condition;
use crate::doctor::report::Finding;
use crate::doctor::table::walls as table;
use crate::doctor::words::{fault_at, has_ids, nearest};

/// The first Linux with `mount_setattr(2)`, which every launch calls; and the first with overlay over id-mapped mounts, which root's call for.
const LEAST: [(u32, u32); 2] = [(5, 12), (5, 19)];
/// Landlock with scopes for signals and abstract sockets.
const FULL_LANDLOCK: u32 = 6;

pub(super) fn kernel(look: &Look) -> Finding {
    let release = &look.host.kernel;
    let least = LEAST[usize::from(look.host.needs_range())];
    match version(release) {
        None => Finding::unknown(&table::KERNEL, format!("`{release}` is no version of Linux")),
        Some(version) if version < least => Finding::bad(
            &table::KERNEL_OLD,
            &look.facts,
            format!("Linux {release}; expected {}.{} or later", least.0, least.1),
        ),
        Some(_) => match host::probe_namespaces(&look.host, None) {
            Err(error) if error.obstacle() == Some(Obstacle::CallMissing) => {
                Finding::bad(&table::KERNEL_CALLS, &look.facts, format!("Linux {release}: {error}"))
            }
            // What else may be wrong with them has a line of its own.
            _ => Finding::ok(&table::KERNEL, format!("Linux {release}")),
        },
    }
}

/// Major and minor number of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

pub(super) fn user_namespaces(look: &Look) -> Finding {
    if let UserNamespaces::Disabled { setting } = look.host.user_namespaces {
        return blocked(
            look,
            &table::USER_NAMESPACES,
            Obstacle::NamespacesOff { setting },
            setting.to_owned(),
        );
    }
    match host::probe_namespaces(&look.host, None) {
        Ok(()) => Finding::ok(&table::USER_NAMESPACES, "made all that a sandbox has"),
        Err(error) => failed(look, &table::USER_NAMESPACES, &error),
    }
}

pub(super) fn root_rights(look: &Look) -> Finding {
    if !look.host.needs_range() {
        return Finding::ok(&table::ROOT_RIGHTS, "an ordinary user, who needs none");
    }
    let lacking = &look.host.lacks_capabilities;
    if !lacking.is_empty() {
        return Finding::bad(
            &table::ROOT_CAPABILITIES,
            &look.facts,
            format!("without {}", lacking.join(", ")),
        );
    }
    match has_ids() {
        Some(true) => Finding::ok(&table::ROOT_RIGHTS, "all capabilities and ids that a launch uses"),
        Some(false) => Finding::bad(
            &table::ROOT_IDS,
            &look.facts,
            "/proc/self/uid_map or gid_map leaves out ids that sandboxes get",
        ),
        None => Finding::unknown(&table::ROOT_RIGHTS, "/proc/self/uid_map or gid_map can't be read"),
    }
}

pub(super) fn procfs(look: &Look) -> Finding {
    match host::probe_procfs(&look.host) {
        Ok(()) => Finding::ok(&table::PROCFS, "mounted one"),
        Err(error) if error.obstacle() == Some(Obstacle::ProcfsCovered) => {
            let covers = look.facts.covers();
            let over = if covers.is_empty() {
                "nothing that shows in the list of mounts".to_owned()
            } else {
                covers.join(", ")
            };
            Finding::bad(&table::PROCFS_COVERED, &look.facts, format!("covered by {over}: {error}"))
        }
        Err(error) => failed(look, &table::PROCFS, &error),
    }
}

pub(super) fn overlay(look: &Look) -> Finding {
    let Some((folder, shown)) = open_nearest(&look.home) else {
        return Finding::unknown(&table::OVERLAY, format!("no folder of `{}` is there", look.home.display()));
    };
    match host::probe_overlay(&look.host, folder.as_fd()) {
        Ok(()) => Finding::ok(&table::OVERLAY, format!("mounted one in `{shown}`, and wrote to it")),
        Err(error) => failed(look, &table::OVERLAY, &error),
    }
}

pub(super) fn mapped_mounts(look: &Look) -> Finding {
    let condition = &table::MAPPED_MOUNTS;
    if !look.host.needs_range() {
        return Finding::ok(condition, "an ordinary user, who needs none");
    }
    let Some((folder, shown)) = open_nearest(&look.home) else {
        return Finding::unknown(condition, format!("no folder of `{}` is there", look.home.display()));
    };
    let Some((programs, _)) = open_nearest(Path::new("/usr")) else {
        return Finding::unknown(condition, "`/usr` can't be opened");
    };
    for (fd, shown) in [(&folder, shown.as_str()), (&programs, "/usr")] {
        match host::probe_idmapped_mounts(fd.as_fd()) {
            Ok(()) => {}
            Err(error) if error.obstacle() == Some(Obstacle::IdMappedMountsMissing) => {
                return Finding::bad(
                    &table::MAPPED_MOUNTS_MISSING,
                    &look.facts,
                    format!("at `{shown}`: {error}"),
                );
            }
            Err(error) => return failed(look, condition, &error),
        }
    }
    Finding::ok(condition, format!("mapped those of `{shown}` and `/usr`"))
}

pub(super) fn seccomp(look: &Look) -> Finding {
    if !look.host.seccomp {
        return Finding::bad(&table::SECCOMP_MISSING, &look.facts, "the kernel has no filter with answers");
    }
    match host::probe_system_call_filter(&look.host) {
        Ok(()) => Finding::ok(&table::SECCOMP, "installed the filter of a sandbox"),
        Err(error) => failed(look, &table::SECCOMP, &error),
    }
}

pub(super) fn landlock(look: &Look) -> Finding {
    let abi = look.host.landlock_abi;
    if abi == 0 {
        return Finding::bad(&table::LANDLOCK_MISSING, &look.facts, "version 0");
    }
    match host::probe_landlock(&look.host) {
        Ok(()) if abi < FULL_LANDLOCK => {
            Finding::bad(&table::LANDLOCK_OLD, &look.facts, format!("version {abi}"))
        }
        Ok(()) => Finding::ok(&table::LANDLOCK, format!("version {abi}; confined a process")),
        Err(error) => failed(look, &table::LANDLOCK, &error),
    }
}

/// A trial that failed: at this condition, if that is what stood in the way; else it could not be tried, and another line says why.
pub(super) fn failed(look: &Look, condition: &'static Condition, error: &Error) -> Finding {
    match error.obstacle() {
        Some(obstacle) => blocked(look, condition, obstacle, error.to_string()),
        None => Finding::unknown(condition, error.to_string()),
    }
}

fn blocked(look: &Look, condition: &'static Condition, obstacle: Obstacle, observed: String) -> Finding {
    match fault_at(obstacle, &look.home) {
        Some(fault) if condition.faults.contains(&fault) => Finding::bad(fault, &look.facts, observed),
        Some(fault) => Finding::unknown(condition, format!("it could not be tried: {}", fault.says)),
        None => Finding::unknown(condition, observed),
    }
}

/// The data folder or the nearest folder above it, opened.
pub(super) fn open_nearest(folder: &Path) -> Option<(OwnedFd, String)> {
    let existing = nearest(folder)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = openat(CWD, existing, flags, Mode::empty()).ok()?;
    Some((fd, existing.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_have_numbers_in_front() {
        assert_eq!(version("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(version("5.10.0+deb"), Some((5, 10)));
        assert_eq!(version("6.1-rc3"), Some((6, 1)));
        assert_eq!(version("weird"), None);
    }
}
