//! The conditions: data, and nothing else. `docs/doctor.md` is made from it.

pub(crate) mod limits;
pub(crate) mod place;
pub(super) mod tiers;
pub(super) mod walls;

use super::condition::{Condition, Fault};

/// Every condition that `doctor` looks at, in the order of its report.
pub static CONDITIONS: &[&Condition] = &[
    &walls::KERNEL,
    &walls::USER_NAMESPACES,
    &walls::ROOT_RIGHTS,
    &walls::PROCFS,
    &walls::OVERLAY,
    &walls::MAPPED_MOUNTS,
    &walls::SECCOMP,
    &walls::LANDLOCK,
    &walls::SUBORDINATE_IDS,
    &limits::CGROUPS,
    &limits::PROCESSES,
    &limits::NAMESPACES,
    &limits::INOTIFY,
    &limits::OPEN_FILES,
    &limits::FILE_SIZE,
    &place::HELPER,
    &place::DATA_FOLDER,
    &place::DISK_ROOM,
    &place::INODE_ROOM,
    &place::CLOCK,
    &place::SURROUNDINGS,
    &tiers::PACKET_FILTER,
    &tiers::RUNSC,
    &tiers::KVM,
];

/// The condition that `fault` is one of.
pub(super) fn condition_of(fault: &Fault) -> &'static Condition {
    let id = fault.id.split('/').next().unwrap_or_default();
    CONDITIONS
        .iter()
        .find(|condition| condition.id == id)
        .expect("every fault is of a condition in the table")
}

/// The fault of this id.
pub(crate) fn fault(id: &str) -> Option<&'static Fault> {
    CONDITIONS.iter().flat_map(|condition| condition.faults).find(|fault| fault.id == id).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::doctor::condition::Mend;

    #[test]
    fn ids_are_of_one_kind_and_each_is_there_once() {
        let kebab = |text: &str| {
            !text.is_empty()
                && text.split('-').all(|word| {
                    !word.is_empty()
                        && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
                })
        };
        let mut seen = BTreeSet::new();
        for condition in CONDITIONS {
            assert!(kebab(condition.id) && seen.insert(condition.id), "{}", condition.id);
            assert!(!condition.faults.is_empty(), "{}", condition.id);
            for fault in condition.faults {
                assert!(seen.insert(fault.id), "{}", fault.id);
                let (of, word) = fault.id.split_once('/').expect("a slash");
                assert!(of == condition.id && kebab(word), "{}", fault.id);
                assert_eq!(condition_of(fault), *condition);
                assert_eq!(super::fault(fault.id), Some(*fault));
            }
        }
        assert!(CONDITIONS.len() >= 14);
    }

    #[test]
    fn every_fault_has_words_and_every_place_a_remedy() {
        for fault in CONDITIONS.iter().flat_map(|condition| condition.faults) {
            assert!(!fault.says.is_empty() && !fault.says.ends_with('.'), "{}", fault.id);
            let on_host = fault.mends.iter().any(|mend| !matches!(mend, Mend::Container(_)));
            let in_container =
                fault.mends.iter().any(|mend| !matches!(mend, Mend::Host(_) | Mend::HostUser(_)));
            assert!(on_host && in_container, "{}: no remedy for one of the places", fault.id);
        }
    }
}
