//! What this machine offers, observed and never assumed.

mod kvm;
mod observe;
mod probe;
mod subids;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing {
    pub(crate) use super::subids::parse as subordinate;
}

pub use kvm::{Kvm, probe_kvm};
pub use observe::{Host, Inotify, UserCounts, UserNamespaces};
pub use probe::{
    probe_idmapped_mounts, probe_landlock, probe_namespaces, probe_overlay, probe_packet_filter,
    probe_procfs, probe_system_call_filter,
};
