use serde::{Deserialize, Serialize};

/// How many ids a sandbox has where ids are mapped: 0 to 65535, which is what `nobody` (65534) and every package need.
pub const ID_COUNT: u32 = 65_536;
/// The user that commands run as, and its group.
pub const USER_ID: u32 = 1000;

/// How the ids inside a sandbox relate to those of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum IdMode {
    /// Ids 0 to `count - 1` are host ids from `base` on, a range that no other sandbox shares. Needs host root.
    Range { base: u32, count: u32 },
    /// Id 0 is the caller; 1 and up are its subordinate ids, mapped by `newuidmap` and `newgidmap`.
    Subordinate(SubIds),
    /// One id: 1000 is the caller. There is no root inside.
    Single,
}

/// The subordinate ids that `/etc/subuid` and `/etc/subgid` give a user: the first range of each that is big enough.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubIds {
    pub uid_base: u32,
    pub gid_base: u32,
    /// Ids in each range, at most [`ID_COUNT`]` - 1`.
    pub count: u32,
}

impl IdMode {
    /// A range of its own for one sandbox, [`ID_COUNT`] ids from `base` on.
    pub fn range(base: u32) -> Self {
        Self::Range { base, count: ID_COUNT }
    }

    /// The word for records: `range`, `subordinate` or `single`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Range { .. } => "range",
            Self::Subordinate(_) => "subordinate",
            Self::Single => "single",
        }
    }

    /// Whether there is a root user inside.
    pub fn has_root(&self) -> bool {
        !matches!(self, Self::Single)
    }

    /// Lines for `uid_map` and `gid_map` as (inside, outside, count), for a caller with these ids.
    pub(crate) fn maps(&self, user: u32, group: u32) -> (Vec<Extent>, Vec<Extent>) {
        match self {
            Self::Range { base, count } => {
                let extent = Extent { inside: 0, outside: *base, count: *count };
                (vec![extent], vec![extent])
            }
            Self::Subordinate(ids) => {
                let own = |outside| Extent { inside: 0, outside, count: 1 };
                let rest = |outside| Extent { inside: 1, outside, count: ids.count };
                (vec![own(user), rest(ids.uid_base)], vec![own(group), rest(ids.gid_base)])
            }
            Self::Single => {
                let own = |outside| Extent { inside: USER_ID, outside, count: 1 };
                (vec![own(user)], vec![own(group)])
            }
        }
    }
}

/// One line of an id map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) inside: u32,
    pub(crate) outside: u32,
    pub(crate) count: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_inside_is_the_caller_with_subordinate_ids_and_never_with_a_range() {
        let sub = IdMode::Subordinate(SubIds { uid_base: 100_000, gid_base: 200_000, count: 65_535 });
        let (uids, gids) = sub.maps(1001, 1002);
        assert_eq!(uids[0], Extent { inside: 0, outside: 1001, count: 1 });
        assert_eq!(uids[1], Extent { inside: 1, outside: 100_000, count: 65_535 });
        assert_eq!(gids[1].outside, 200_000);
        let (uids, _) = IdMode::range(1 << 20).maps(0, 0);
        assert_eq!(uids, [Extent { inside: 0, outside: 1 << 20, count: ID_COUNT }]);
        let (uids, _) = IdMode::Single.maps(1001, 1001);
        assert_eq!(uids, [Extent { inside: 1000, outside: 1001, count: 1 }]);
    }
}
