use crate::host::{Host, UserCounts};
use crate::ids::IdMode;
use crate::limits::{LOCKED_BYTES, MESSAGE_QUEUE_BYTES, PENDING_SIGNALS, SHARE_OF_ALL, SHARE_OF_USER};

/// What the kernel counts by user: of each id in the sandbox, and of the user namespace's owner on the host together
/// with all else that this owner has. `None` is no bound of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) of_each: UserCounts,
    pub(crate) of_owner: UserCounts,
}

pub(crate) fn counted(ids: &IdMode, host: &Host) -> Counted {
    let most = UserCounts {
        signals: Some(PENDING_SIGNALS),
        message_bytes: Some(MESSAGE_QUEUE_BYTES),
        locked_bytes: Some(LOCKED_BYTES),
    };
    let own = &host.user_counts;
    match ids {
        // The owner is an id that no other sandbox has, so the sum over all ids of the sandbox is bounded by it.
        IdMode::Range { .. } => Counted { of_each: lower(most, *own), of_owner: lower(most, *own) },
        IdMode::Subordinate(_) | IdMode::Single => {
            Counted { of_each: lower(most, share(*own, SHARE_OF_USER)), of_owner: share(*own, SHARE_OF_ALL) }
        }
    }
}

fn share(of: UserCounts, share: u32) -> UserCounts {
    let part = |count: Option<u64>| count.map(|count| count / u64::from(share));
    UserCounts {
        signals: part(of.signals),
        message_bytes: part(of.message_bytes),
        locked_bytes: part(of.locked_bytes),
    }
}

fn lower(one: UserCounts, other: UserCounts) -> UserCounts {
    let less = |one: Option<u64>, other: Option<u64>| match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    UserCounts {
        signals: less(one.signals, other.signals),
        message_bytes: less(one.message_bytes, other.message_bytes),
        locked_bytes: less(one.locked_bytes, other.locked_bytes),
    }
}
