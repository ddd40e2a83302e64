//! Sandboxes on this Linux machine, with nothing but this machine: no account, no daemon, no root, no download.
//!
//! [`LocalProvider`] is the backend. A sandbox has a *shim*, a small host process that [`shim_main`] is the `main` of, and an *agent* inside. Who
//! starts, watches and adopts whom is decision 0002 in `docs/decisions`.

mod aside;
mod ask;
mod audit;
mod bounds;
mod build;
mod capacity;
mod capture;
mod client;
mod config;
mod ctl;
mod descriptor;
mod destroy;
mod disk;
mod doctor;
mod env;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod helper;
mod home;
mod id;
mod inside;
mod janitor;
mod loop_store;
mod mounts;
mod network;
mod observe;
mod options;
mod probe;
mod provider;
mod sandbox;
mod shim;
mod spare;
mod store;
mod teardown;
mod template;
mod templates;
mod unseat;
mod verify;
mod volumes;
mod wait;
mod worker;

pub use config::{
    DEFAULT_DEADLINE, DEFAULT_DISK, DEFAULT_MEMORY, DEFAULT_PIDS, DEFAULT_READY_WITHIN, Defaults,
    LocalConfig, Spare,
};
pub use disk::{DiskShare, DiskUsage, Prunable, PruneKind, PruneMode, PruneOptions, PruneReport};
pub use doctor::{
    CONDITIONS, Condition, Doctor, Fault, Finding, FindingState, HostReport, Mend, Need, Package, Weight,
    conditions_document,
};
pub use loop_store::InitializedStore;
pub use probe::{PROBE_NAME, probe_main};
pub use provider::LocalProvider;
pub use sandbox::LocalSandbox;
pub use shim::shim_main;
pub use templates::{
    ExportReport, FolderOwners, ImportListener, ImportOptions, ImportProgress, PullOptions, TemplateDetails,
    TemplateLayer, TemplateSource,
};
pub use verify::{LeakSuite, scorecard_document};
pub use worker::worker_main;
