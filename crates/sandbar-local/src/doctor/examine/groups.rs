use sandbar_engine::cgroup::{Cgroup, Controller, Lack, Layout};
use sandbar_engine::{Enforcement, Limits};

use super::Look;
use crate::doctor::condition::Fault;
use crate::doctor::report::Finding;
use crate::doctor::table::limits as table;
use crate::id::random_text;

/// Limits to try with: as small as the kernel takes, for a group that nothing is in.
const TRIAL: Limits = Limits {
    memory_bytes: Some(16 << 20),
    cpus_milli: Some(1000),
    pids: Some(16),
    disk_bytes: None,
    nofile: None,
    inotify_watches: None,
    inotify_instances: None,
};
/// Nothing is in the group, so the kernel removes it at once.
const REMOVAL: std::time::Duration = std::time::Duration::from_secs(2);

pub(super) fn cgroups(look: &Look) -> Finding {
    let layout = &look.host.cgroups;
    if layout.name() == "none" {
        return match fault_of(layout) {
            Some(fault) => Finding::bad(fault, &look.facts, "mode none"),
            None => Finding::unknown(&table::CGROUPS, "/proc/self/mountinfo can't be read"),
        };
    }
    let Ok(suffix) = random_text(12) else {
        return Finding::unknown(&table::CGROUPS, "no random name for a group to try with");
    };
    let group = match Cgroup::create(layout, &format!("probe-{suffix}"), &TRIAL) {
        Ok(Some(group)) => group,
        Ok(None) => return Finding::unknown(&table::CGROUPS, "there is no group to try with"),
        Err(error) => return Finding::bad(&table::CGROUPS_REFUSED, &look.facts, error.to_string()),
    };
    let enforced = group.enforced();
    if let Err(error) = group.remove(REMOVAL) {
        return Finding::bad(&table::CGROUPS_REFUSED, &look.facts, error.to_string());
    }
    let named = |wanted: bool| -> Vec<&str> {
        ["memory", "cpu", "pids"]
            .into_iter()
            .zip(enforced)
            .filter(|(_, state)| (*state == Enforcement::Enforced) == wanted)
            .map(|(name, _)| name)
            .collect()
    };
    let (kept, lacking) = (named(true), named(false));
    if lacking.is_empty() {
        return Finding::ok(&table::CGROUPS, format!("mode {}; {} enforced", layout.name(), kept.join(", ")));
    }
    let observed = format!("mode {}; without {}", layout.name(), lacking.join(", "));
    Finding::bad(&table::CGROUPS_PARTIAL, &look.facts, observed)
}

/// Why not all limits are enforced, from what a creation knows anyway; `None` where they can be, or where that is not known.
pub(crate) fn fault_of(layout: &Layout) -> Option<&'static Fault> {
    match layout.lack {
        Some(Lack::NotMounted) => Some(&table::CGROUPS_NOT_MOUNTED),
        Some(Lack::ReadOnly) => Some(&table::CGROUPS_READ_ONLY),
        Some(Lack::NotDelegated) => Some(&table::CGROUPS_NOT_DELEGATED),
        Some(Lack::Unknown) => None,
        None => {
            let all = [Controller::Memory, Controller::Cpu, Controller::Pids];
            (!all.into_iter().all(|controller| layout.offers(controller))).then_some(&table::CGROUPS_PARTIAL)
        }
    }
}
