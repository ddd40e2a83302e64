use sandbar_engine::{IdMode, host};

use super::Look;
use super::walls::failed;
use crate::doctor::report::Finding;
use crate::doctor::table::walls as table;
use crate::doctor::words::newuidmap_has_power;

pub(super) fn subordinate(look: &Look) -> Finding {
    let condition = &table::SUBORDINATE_IDS;
    if look.host.needs_range() {
        return Finding::ok(condition, "root, who has ranges of its own");
    }
    if look.host.newuidmap.is_none() || look.host.newgidmap.is_none() {
        return Finding::bad(
            &table::SUBIDS_TOOLS,
            &look.facts,
            "looked in /usr/bin, /bin, /usr/local/bin, /run/wrappers/bin",
        );
    }
    let ids = look.host.user_id_mode();
    let IdMode::Subordinate(found) = &ids else {
        return Finding::bad(&table::SUBIDS_NONE, &look.facts, "looked in /etc/subuid and /etc/subgid");
    };
    match host::probe_namespaces(&look.host, Some(&ids)) {
        Ok(()) => Finding::ok(
            condition,
            format!(
                "mapped {} ids, users from {} and groups from {}",
                found.count, found.uid_base, found.gid_base
            ),
        ),
        Err(error) if !newuidmap_has_power() => {
            Finding::bad(&table::SUBIDS_POWERLESS, &look.facts, error.to_string())
        }
        Err(error) => failed(look, condition, &error),
    }
}
