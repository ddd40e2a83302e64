//! The data folder: what stands where, and how several processes change it at once. The layout is that of decision 0002.

mod assigned;
mod authority;
mod decisions;
mod folder;
mod lines;
mod lock;
mod main_log;
mod names;
mod open;
mod policy;
mod pool;
mod record;
mod slots;
mod trash;
mod usage;

pub(crate) use assigned::AssignedNames;
pub(crate) use decisions::{DecisionLog, DecisionReader};
pub(crate) use folder::Folder;
pub(crate) use lock::Lock;
pub(crate) use main_log::{MainLog, MainLogReader};
pub(crate) use open::{FOLDERS, Home, open_dir};
pub(crate) use policy::{MAX_POLICY, SealedPolicy};
pub(crate) use record::{
    AgentMark, Asleep, NO_EGRESS, Owner, Pending, Private, StoredRecord, boot_id, isolation, now,
};
pub(crate) use slots::ID_RANGES;
pub(crate) use usage::USAGE_FILES;
