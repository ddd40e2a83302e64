//! What this machine offers, observed and never assumed.

mod observe;
mod probe;
mod subids;

pub use observe::{Host, Inotify, UserCounts, UserNamespaces};
pub use probe::{probe_idmapped_mounts, probe_user_namespace};
