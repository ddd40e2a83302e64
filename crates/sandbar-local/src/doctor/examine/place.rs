use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};
use sandbar_core::ErrorKind;

use super::Look;
use super::programs::ask;
use crate::doctor::report::Finding;
use crate::doctor::surroundings::Surroundings;
use crate::doctor::table::place as table;
use crate::doctor::words::nearest;
use crate::doctor::{fault_in, table as all};
use crate::home::Home;

/// Nobody had this program earlier: 2025-01-01. Nor has anybody later than the year 2100 seen it.
const EARLIEST: Duration = Duration::from_secs(1_735_689_600);
const LATEST: Duration = Duration::from_secs(4_102_444_800);

pub(super) fn helper(look: &Look) -> Finding {
    let found = match crate::helper::find(look.helper.as_deref(), &look.environment) {
        Ok(found) => found,
        Err(error) => return Finding::bad(&table::HELPER_MISSING, &look.facts, error.message()),
    };
    let shown = found.display();
    let own = env!("CARGO_PKG_VERSION");
    let answer = match ask(&found, &["version", "--json"]) {
        Ok(answer) if answer.status.success() => answer.said,
        Ok(answer) => {
            let observed = format!("`{shown}` ends with {} when asked for its version", answer.status);
            return Finding::bad(&table::HELPER_STRANGE, &look.facts, observed);
        }
        Err(cause) => {
            let observed = format!("`{shown}` does not tell its version: {cause}");
            return Finding::bad(&table::HELPER_STRANGE, &look.facts, observed);
        }
    };
    let version = serde_json::from_str::<serde_json::Value>(&answer)
        .ok()
        .and_then(|answer| Some(answer.get("version")?.as_str()?.to_owned()));
    match version {
        None => {
            Finding::bad(&table::HELPER_STRANGE, &look.facts, format!("`{shown}` does not tell its version"))
        }
        Some(version) if version == own => {
            Finding::ok(&table::HELPER, format!("`{shown}`, version {version}"))
        }
        Some(version) => {
            let observed = format!("`{shown}` has version {version}, this program {own}");
            Finding::bad(&table::HELPER_VERSION, &look.facts, observed)
        }
    }
}

pub(super) fn data_folder(look: &Look) -> Finding {
    let condition = &table::DATA_FOLDER;
    let shown = look.home.display();
    let is_there = match Home::open(&look.home) {
        Ok(home) => home.is_some(),
        Err(error) => {
            return match fault_in(&error) {
                Some(fault) => Finding::bad(fault, &look.facts, error.message()),
                None if error.kind() == ErrorKind::Config => {
                    Finding::bad(&table::FOLDER_NONE, &look.facts, error.message())
                }
                None => Finding::unknown(condition, error.message()),
            };
        }
    };
    let Some(existing) = nearest(&look.home) else {
        return Finding::unknown(condition, format!("no folder of `{shown}` is there"));
    };
    if let Err(cause) = access(existing, Access::WRITE_OK | Access::EXEC_OK) {
        return Finding::bad(
            &table::FOLDER_READ_ONLY,
            &look.facts,
            format!("`{}`: {cause}", existing.display()),
        );
    }
    let observed = if is_there { format!("`{shown}`") } else { format!("`{shown}`, which is not made yet") };
    match statvfs(existing) {
        Err(cause) => Finding::unknown(condition, format!("`{}`: {cause}", existing.display())),
        Ok(data) if data.f_flag.contains(StatVfsMountFlags::RDONLY) => {
            Finding::bad(&table::FOLDER_READ_ONLY, &look.facts, format!("{observed}, mounted read-only"))
        }
        Ok(data) if data.f_flag.contains(StatVfsMountFlags::NOEXEC) => {
            Finding::bad(&table::FOLDER_NOEXEC, &look.facts, observed)
        }
        Ok(_) => Finding::ok(condition, format!("{observed}, on {}", file_system(existing))),
    }
}

/// The kind of file system, by the numbers of `linux/magic.h`.
fn file_system(folder: &Path) -> String {
    let Ok(data) = rustix::fs::statfs(folder) else { return "a file system that tells nothing".into() };
    let known = match u32::try_from(data.f_type) {
        Ok(0xef53) => "ext4",
        Ok(0x5846_5342) => "xfs",
        Ok(0x9123_683e) => "btrfs",
        Ok(0x0102_1994) => "tmpfs",
        Ok(0x794c_7630) => "overlay",
        Ok(0x2fc1_2fc1) => "zfs",
        Ok(0x6969) => "nfs",
        Ok(0x6573_5546) => "fuse",
        Ok(0xca45_1a4e) => "bcachefs",
        Ok(0xf2f5_2010) => "f2fs",
        Ok(0x0102_1997) => "9p",
        _ => return format!("a file system of kind {:#x}", data.f_type),
    };
    known.to_owned()
}

pub(super) fn clock(look: &Look) -> Finding {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC");
    if since < EARLIEST || since > LATEST {
        return Finding::bad(&table::CLOCK_OFF, &look.facts, format!("it says {now}"));
    }
    Finding::ok(&table::CLOCK, now.to_string())
}

pub(super) fn surroundings(look: &Look) -> Finding {
    let Surroundings { container, wsl, gvisor } = Surroundings::look();
    if gvisor {
        return Finding::bad(&table::SURROUNDINGS_GVISOR, &look.facts, "/proc/version tells it");
    }
    if wsl == Some(1) {
        return Finding::bad(&table::SURROUNDINGS_WSL1, &look.facts, "the kernel's release tells it");
    }
    let place = match (container, wsl) {
        (Some(container), _) => format!("in a container of {}", container.name()),
        (None, Some(version)) => format!("Windows subsystem, version {version}"),
        (None, None) => "no container that shows".to_owned(),
    };
    debug_assert!(all::CONDITIONS.contains(&&table::SURROUNDINGS));
    Finding::ok(&table::SURROUNDINGS, place)
}
