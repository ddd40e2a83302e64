use rustix::process::{Resource, getrlimit};

use super::Look;
use crate::config::{DEFAULT_DISK, DEFAULT_PIDS};
use crate::doctor::limits_of_caller::{LEAST_FILE_SIZE, LEAST_FILES};
use crate::doctor::report::Finding;
use crate::doctor::table::limits as table;
use crate::doctor::wording::bounded;
use crate::doctor::words::setting;

/// Descriptors that a shim has use for.
const GOOD_FILES: u64 = 8192;
/// Processes and threads of a sandbox with nothing in it: shim, agent, a command with its stub, and what `newuidmap` takes meanwhile.
const LEAST_PROCESSES: u64 = 8;
/// Sandboxes that a machine should bear side by side.
const MANY: u64 = 100;
/// Mounts of one sandbox while it is put together.
const MOUNTS: u64 = 200;
/// What the kernel gives a user by itself, and what development servers name in their messages.
const GOOD_INSTANCES: u32 = 128;
const GOOD_WATCHES: u32 = 524_288;

pub(super) fn processes(look: &Look) -> Finding {
    let mut rooms: Vec<(u64, String)> = Vec::new();
    let used = bounded("/proc/loadavg").ok().and_then(|text| running(&text));
    let Some(used) = used else {
        return Finding::unknown(&table::PROCESSES, "/proc/loadavg can't be read");
    };
    for name in ["pid_max", "threads-max"] {
        let Some(most) = setting(&format!("/proc/sys/kernel/{name}")) else {
            return Finding::unknown(&table::PROCESSES, format!("/proc/sys/kernel/{name} can't be read"));
        };
        rooms.push((most.saturating_sub(used), format!("kernel.{name} is {most}, {used} are there")));
    }
    // Root is not bound by it.
    if let (Some(most), false) = (getrlimit(Resource::Nproc).current, look.host.needs_range()) {
        let own = threads_of(look.host.euid);
        rooms.push((most.saturating_sub(own), format!("`ulimit -u` is {most}, this user has {own}")));
    }
    if let Some((most, own)) = own_group() {
        rooms.push((most.saturating_sub(own), format!("the control group allows {most}, {own} are there")));
    }
    let Some((room, why)) = rooms.into_iter().min() else {
        return Finding::unknown(&table::PROCESSES, "no limit could be read");
    };
    let observed = format!("room for {room}: {why}");
    if room < LEAST_PROCESSES {
        Finding::bad(&table::PROCESSES_USED_UP, &look.facts, observed)
    } else if room < u64::from(DEFAULT_PIDS) {
        Finding::bad(&table::PROCESSES_FEW, &look.facts, observed)
    } else {
        Finding::ok(&table::PROCESSES, observed)
    }
}

/// Processes and threads that there are, from `/proc/loadavg`: `0.1 0.2 0.3 running/all last`.
fn running(loadavg: &str) -> Option<u64> {
    loadavg.split(' ').nth(3)?.split('/').nth(1)?.parse().ok()
}

/// Threads of a user, as far as they are to be seen.
fn threads_of(user: u32) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit))
        .filter(|entry| entry.metadata().is_ok_and(|meta| meta.uid() == user))
        .map(|entry| {
            std::fs::read_dir(entry.path().join("task"))
                .map_or(1, |tasks| u64::try_from(tasks.count()).unwrap_or(1))
        })
        .sum()
}

/// Limit and count of the nearest group with a limit, of either version, where it is to be seen.
fn own_group() -> Option<(u64, u64)> {
    let own = bounded("/proc/self/cgroup").ok()?;
    let places = own.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let top = match controllers {
            "" => ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
                .into_iter()
                .find(|top| std::path::Path::new(top).join("cgroup.controllers").exists())?,
            "pids" => "/sys/fs/cgroup/pids",
            _ => return None,
        };
        Some((top, path.trim_start_matches('/').to_owned()))
    });
    places
        .flat_map(|(top, path)| {
            let group = std::path::Path::new(top).join(path);
            let above: Vec<_> = group
                .ancestors()
                .take_while(|group| group.starts_with(top))
                .map(std::path::Path::to_path_buf)
                .collect();
            above
        })
        .filter_map(|group| {
            let read = |name: &str| setting(&group.join(name).to_string_lossy());
            Some((read("pids.max")?, read("pids.current")?))
        })
        .min_by_key(|(most, own)| most.saturating_sub(*own))
}

pub(super) fn namespaces(look: &Look) -> Finding {
    let mut least: Option<(u64, String)> = None;
    for kind in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        let name = format!("user.max_{kind}_namespaces");
        let Some(most) = setting(&format!("/proc/sys/user/max_{kind}_namespaces")) else {
            return Finding::unknown(&table::NAMESPACES, format!("{name} can't be read"));
        };
        // Those of user namespaces being off is a condition of its own.
        if least.as_ref().is_none_or(|(value, _)| most < *value) && !(kind == "user" && most == 0) {
            least = Some((most, name));
        }
    }
    let Some((most, name)) = least else {
        return Finding::unknown(&table::NAMESPACES, "no setting could be read");
    };
    let observed = format!("{name} is {most}");
    if most == 0 {
        return Finding::bad(&table::NAMESPACES_OFF, &look.facts, observed);
    }
    if let Some(mounts) = setting("/proc/sys/fs/mount-max").filter(|mounts| *mounts < MOUNTS) {
        return Finding::bad(&table::MOUNTS_FEW, &look.facts, format!("fs.mount-max is {mounts}"));
    }
    if most < MANY {
        return Finding::bad(&table::NAMESPACES_FEW, &look.facts, observed);
    }
    Finding::ok(&table::NAMESPACES, format!("the least is {observed}"))
}

pub(super) fn inotify(look: &Look) -> Finding {
    let sandbar_engine::host::Inotify { instances, watches } = look.host.user_inotify;
    let observed = format!("{instances} instances and {watches} watches a user");
    if instances < GOOD_INSTANCES || watches < GOOD_WATCHES {
        return Finding::bad(&table::INOTIFY_FEW, &look.facts, observed);
    }
    Finding::ok(&table::INOTIFY, observed)
}

pub(super) fn open_files(look: &Look) -> Finding {
    let limit = getrlimit(Resource::Nofile);
    let (soft, hard) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    let observed = format!("`ulimit -n` is {}, at most {}", shown(soft), shown(hard));
    if soft < LEAST_FILES {
        Finding::bad(&table::OPEN_FILES_NONE, &look.facts, observed)
    } else if hard < GOOD_FILES {
        Finding::bad(&table::OPEN_FILES_FEW, &look.facts, observed)
    } else {
        Finding::ok(&table::OPEN_FILES, observed)
    }
}

pub(super) fn file_size(look: &Look) -> Finding {
    let most = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    let observed =
        format!("`ulimit -f` is {}", if most == u64::MAX { shown(most) } else { format!("{most} bytes") });
    if most < LEAST_FILE_SIZE {
        Finding::bad(&table::FILE_SIZE_NONE, &look.facts, observed)
    } else if most < DEFAULT_DISK {
        Finding::bad(&table::FILE_SIZE_SMALL, &look.facts, observed)
    } else {
        Finding::ok(&table::FILE_SIZE, observed)
    }
}

fn shown(limit: u64) -> String {
    if limit == u64::MAX { "unlimited".to_owned() } else { limit.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_processes_are_counted_and_not_the_running_ones() {
        assert_eq!(running("0.20 0.18 0.12 1/80 11206\n"), Some(80));
        assert_eq!(running(""), None);
    }
}
