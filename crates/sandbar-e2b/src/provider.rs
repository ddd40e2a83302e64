use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, future};
use sandbar_core::{
    CreateOptions, EgressCheck, Error, ErrorKind, GetOptions, Query, Result, Sandbox, SandboxId,
    SandboxProvider, SandboxRecord, Templates, Volumes, Wake,
};
use sandbar_wire::e2b::SandboxState;

use crate::access::Access;
use crate::api::Api;
use crate::config::BACKEND;
use crate::error::unknown_state;
use crate::lease::Leases;
use crate::{E2bConfig, E2bSandbox, marks, record};

/// Sandboxes of one account. Cheap to clone; a clone shares the connections.
///
/// A sandbox that is owned ([`Lifetime::Owned`](sandbar_core::Lifetime::Owned)) is so by this provider and its clones: it is gone two minutes after
/// the last of them.
#[derive(Clone, Debug)]
pub struct E2bProvider {
    pub(crate) api: Api,
    pub(crate) leases: Leases,
}

impl E2bProvider {
    /// Opens it. Nothing is sent, and a missing key is an error only when something is to be.
    pub fn open(config: E2bConfig) -> Result<Self> {
        Ok(Self { api: Api::new(config)?, leases: Leases::default() })
    }

    /// What it was opened with.
    pub fn config(&self) -> &E2bConfig {
        self.api.config()
    }

    pub(crate) fn handle(&self, id: SandboxId) -> E2bSandbox {
        E2bSandbox::new(Access::new(self.api.clone(), id), self.leases.clone())
    }
}

#[async_trait]
impl SandboxProvider for E2bProvider {
    fn name(&self) -> &'static str {
        BACKEND
    }

    async fn create(&self, options: CreateOptions) -> Result<Arc<dyn Sandbox>> {
        Ok(self.create_sandbox(options).await?.shared())
    }

    async fn get_opts(&self, id: &SandboxId, options: GetOptions) -> Result<Option<Arc<dyn Sandbox>>> {
        let detail = self.api.detail("get", id).await.map_err(|error| unknown_state("get", id, error))?;
        let Some(detail) = detail else { return Ok(None) };
        let sandbox = self.handle(id.clone());
        sandbox.access.learn(&detail);
        if options.wake == Wake::Yes && detail.listed.state == SandboxState::Paused {
            match sandbox.wake().await {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                woken => woken?,
            }
        }
        Ok(Some(sandbox.shared()))
    }

    async fn describe(&self, id: &SandboxId) -> Result<Option<SandboxRecord>> {
        let detail =
            self.api.detail("describe", id).await.map_err(|error| unknown_state("describe", id, error))?;
        Ok(detail.and_then(|detail| record::of_detail(self.config(), &detail)))
    }

    async fn list(&self, query: Query) -> Result<BoxStream<'static, Result<SandboxRecord>>> {
        let metadata = marks::filter(&query.labels, query.project.as_ref());
        let rows = self.api.list("list", &metadata, &record::states(&query));
        let config = self.config().clone();
        let mut seen = HashSet::new();
        let records = rows.map(move |row| {
            let record = record::of_row(&config, &row?).ok_or_else(|| {
                Error::new(ErrorKind::Protocol, "list", "a row of the listing has an id that is none")
                    .with_backend(BACKEND)
            })?;
            // What is made meanwhile moves rows to the next page.
            let is_wanted = query.matches(&record) && seen.insert(record.id.clone());
            Ok(is_wanted.then_some(record))
        });
        Ok(records.try_filter_map(|record| future::ready(Ok(record))).boxed())
    }

    async fn destroy(&self, id: &SandboxId) -> Result<bool> {
        self.leases.end(id);
        self.api.kill("destroy", id).await.map_err(|error| unknown_state("destroy", id, error))
    }

    fn templates(&self) -> Option<&dyn Templates> {
        Some(self)
    }

    fn volumes(&self) -> Option<&dyn Volumes> {
        Some(self)
    }

    fn egress(&self) -> Option<&dyn EgressCheck> {
        Some(self)
    }

    fn missing_reason(&self, part: &str) -> Option<String> {
        let why = match part {
            "builds" => {
                "templates of E2B are built with its own tools; a snapshot of a sandbox can be committed here"
            }
            "capacity" => "E2B does not tell what room there is",
            "usage" => "E2B does not tell what sandboxes that ended had used",
            _ => return None,
        };
        Some(why.to_owned())
    }
}
