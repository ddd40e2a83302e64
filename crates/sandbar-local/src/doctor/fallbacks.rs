//! What a creation made do with, for the record: nothing degrades silently.

use sandbar_core::Fallback;
use sandbar_engine::{Enforced, Enforcement, Host, IdMode};

use super::condition::Fault;
use super::examine::groups_fault;
use super::table::{self, limits, tiers, walls};

/// The id of the fault that leaves a sandbox without a gateway.
pub(crate) const NO_GATEWAY: &str = tiers::PACKET_FILTER_MISSING.id;

/// The ids of the faults that a sandbox with these ids and limits bears. Looks at nothing: all is known by then.
pub(crate) fn fallbacks(
    host: &Host,
    ids: &IdMode,
    enforced: Enforced,
    has_writable_mount: bool,
) -> Vec<String> {
    let mut faults: Vec<&'static Fault> = Vec::new();
    // With a writable mount a single id is what was asked for.
    if *ids == IdMode::Single && !has_writable_mount {
        faults.push(single_id_fault(host));
    }
    if *ids == IdMode::Single {
        match host.landlock_abi {
            0 => faults.push(&walls::LANDLOCK_MISSING),
            1..6 => faults.push(&walls::LANDLOCK_OLD),
            _ => {}
        }
    }
    let Enforced { memory, cpu, pids, disk: _, nofile: _, inotify: _ } = enforced;
    if [memory, cpu, pids].contains(&Enforcement::Watched) {
        faults.push(groups_fault(&host.cgroups).unwrap_or(&limits::CGROUPS_PARTIAL));
    }
    faults.into_iter().map(|fault| fault.id.to_owned()).collect()
}

/// Why an ordinary user's sandboxes have a single id.
pub(crate) fn single_id_fault(host: &Host) -> &'static Fault {
    let has_tools = host.newuidmap.is_some() && host.newgidmap.is_some();
    if has_tools { &walls::SUBIDS_NONE } else { &walls::SUBIDS_TOOLS }
}

/// The words for an id of a record. One that a newer version wrote has none here, and is shown as it stands.
pub(crate) fn named(id: &str) -> Fallback {
    match table::fault(id) {
        Some(fault) => {
            let condition = table::condition_of(fault);
            Fallback {
                condition: condition.id.to_owned(),
                observed: fault.says.to_owned(),
                cost: condition.cost.to_owned(),
            }
        }
        None => Fallback {
            condition: id.split('/').next().unwrap_or(id).to_owned(),
            observed: format!("`{id}`, which this version has no words for"),
            cost: String::new(),
        },
    }
}
