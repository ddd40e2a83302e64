use std::sync::Arc;

use async_trait::async_trait;
use futures::TryStreamExt;

use crate::{
    Archive, Builds, CapacityReport, EgressCheck, Error, Forking, GetOptions, Guest, MainProcess, Metrics,
    Network, Pausing, Ports, Processes, Query, ResourceControl, Result, Sandbox, SandboxId, SandboxProvider,
    SandboxRecord, Templates, UsageHistory, Volumes, Watching,
};

fn missing(operation: &'static str, part: &'static str, reason: Option<String>) -> Error {
    Error::unsupported(operation, part, reason.unwrap_or_else(|| "this backend has no such part".into()))
}

macro_rules! require {
    ($($(#[$doc:meta])* $require:ident, $accessor:ident, $part:ident;)*) => {
        $(
            $(#[$doc])*
            fn $require(&self) -> Result<&dyn $part> {
                self.$accessor().ok_or_else(|| {
                    missing(stringify!($accessor), stringify!($accessor), self.missing_reason(stringify!($accessor)))
                })
            }
        )*
    };
}

/// What every provider can do with the calls of [`SandboxProvider`].
#[async_trait]
pub trait ProviderExt: SandboxProvider {
    /// [`SandboxProvider::get_opts`] with defaults: does not wake.
    async fn get(&self, id: &SandboxId) -> Result<Option<Arc<dyn Sandbox>>> {
        self.get_opts(id, GetOptions::default()).await
    }

    /// A handle on a sandbox that has to exist.
    async fn require(&self, id: &SandboxId) -> Result<Arc<dyn Sandbox>> {
        self.get(id)
            .await?
            .ok_or_else(|| Error::not_found("get", format!("sandbox `{id}`")).with_backend(self.name()))
    }

    /// The whole listing, or the error that cut it short.
    async fn list_all(&self, query: Query) -> Result<Vec<SandboxRecord>> {
        self.list(query).await?.try_collect().await
    }

    require! {
        /// The templates part, or `Unsupported` with the reason.
        require_templates, templates, Templates;
        /// The builds part, or `Unsupported` with the reason.
        require_builds, builds, Builds;
        /// The volumes part, or `Unsupported` with the reason.
        require_volumes, volumes, Volumes;
        /// The egress part, or `Unsupported` with the reason.
        require_egress, egress, EgressCheck;
        /// The capacity part, or `Unsupported` with the reason.
        require_capacity, capacity, CapacityReport;
        /// The usage part, or `Unsupported` with the reason.
        require_usage, usage, UsageHistory;
    }
}

impl<P: SandboxProvider + ?Sized> ProviderExt for P {}

/// What every sandbox can do with the calls of [`Sandbox`].
pub trait SandboxExt: Sandbox {
    require! {
        /// The processes part, or `Unsupported` with the reason.
        require_processes, processes, Processes;
        /// The watching part, or `Unsupported` with the reason.
        require_watching, watching, Watching;
        /// The ports part, or `Unsupported` with the reason.
        require_ports, ports, Ports;
        /// The metrics part, or `Unsupported` with the reason.
        require_metrics, metrics, Metrics;
        /// The pausing part, or `Unsupported` with the reason.
        require_pausing, pausing, Pausing;
        /// The forking part, or `Unsupported` with the reason.
        require_forking, forking, Forking;
        /// The archive part, or `Unsupported` with the reason.
        require_archive, archive, Archive;
        /// The resources part, or `Unsupported` with the reason.
        require_resources, resources, ResourceControl;
        /// The main command part, or `Unsupported` with the reason.
        require_main_command, main_command, MainProcess;
        /// The network part, or `Unsupported` with the reason.
        require_network, network, Network;
        /// The guest part, or `Unsupported` with the reason.
        require_guest, guest, Guest;
    }
}

impl<S: Sandbox + ?Sized> SandboxExt for S {}
