//! Making a sandbox, once and not twice, whatever becomes of an answer.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use sandbar_core::{CreateOptions, Error, ErrorKind, Lifetime, Result, Retry, SandboxId, SandboxName};
use sandbar_wire::e2b::{ListedSandbox, Metadata, SandboxState};
use tokio::time::sleep;
use uuid::Uuid;

use crate::config::BACKEND;
use crate::marks::{creation_filter, name_filter};
use crate::plan::Plan;
use crate::{E2bProvider, E2bSandbox};

const OPERATION: &str = "create";

/// How often a name is tried for that others try for at the same moment.
const NAME_TRIES: u32 = 10;

/// Longest pause between two such tries: others need about as long to make a sandbox and to take it back.
const NAME_PAUSE: Duration = Duration::from_millis(1500);

const BOTH: &[SandboxState] = &[SandboxState::Running, SandboxState::Paused];

impl E2bProvider {
    /// Makes a sandbox and answers a handle of this backend's own kind.
    pub async fn create_sandbox(&self, options: CreateOptions) -> Result<E2bSandbox> {
        let plan = Plan::of(self.api.config(), options)?;
        match &plan.name {
            None => self.make(&plan).await,
            Some(name) => self.make_named(&plan, name).await,
        }
    }

    async fn make(&self, plan: &Plan) -> Result<E2bSandbox> {
        let creation = Uuid::new_v4().to_string();
        let sandbox = match self.api.create(&plan.request(&creation), &creation).await {
            Ok(created) => {
                let sandbox = self.handle(id_of(&created.sandbox.sandbox_id)?);
                sandbox.access.made(&created.sandbox);
                if created.was_repeated {
                    self.keep_one(&creation, sandbox.access.id()).await?;
                }
                sandbox
            }
            Err(failed) if failed.is_answered => return Err(failed.error),
            Err(failed) => self.adopt(&creation, failed.error).await?,
        };
        if plan.owner == Lifetime::Owned {
            self.leases.start(&self.api, sandbox.access.id(), plan.lifetime);
        }
        sandbox.remember_lifetime(plan.lifetime);
        Ok(sandbox)
    }

    /// A creation whose answer did not come: what it made, if it did, has its mark.
    async fn adopt(&self, creation: &str, lost: Error) -> Result<E2bSandbox> {
        let unknown = |why: &str, lost: Error| {
            let message = format!("no answer came, and {why}: whether a sandbox was made is unknown");
            Error::new(lost.kind(), OPERATION, message)
                .with_backend(BACKEND)
                .with_retry(Retry::OutcomeUnknown)
                .with_hint(format!(
                    "if it was, its metadata has `sandbarCreation` with the value `{creation}`"
                ))
                .with_source(lost)
        };
        if lost.retry() == Retry::Never {
            // Nothing was sent.
            return Err(lost);
        }
        let Ok(found) = self.with_metadata(&creation_filter(creation)).await else {
            return Err(unknown("what there is can't be listed", lost));
        };
        let mut ids = found.iter().map(|row| id_of(&row.sandbox_id)).collect::<Result<Vec<_>>>()?;
        ids.sort();
        let Some(first) = ids.first() else {
            return Err(unknown("nothing that it made is listed yet", lost));
        };
        self.destroy_all(&ids[1..]).await?;
        Ok(self.handle(first.clone()))
    }

    /// A server that does not know keys may have made more than one.
    async fn keep_one(&self, creation: &str, kept: &SandboxId) -> Result<()> {
        let found = match self.with_metadata(&creation_filter(creation)).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "whether a repeated creation made two sandboxes is unknown");
                return Ok(());
            }
        };
        let others = found.iter().filter(|row| row.sandbox_id != kept.as_str());
        let others = others.map(|row| id_of(&row.sandbox_id)).collect::<Result<Vec<_>>>()?;
        self.destroy_all(&others).await
    }

    /// A name is taken by whoever has it alone. E2B knows no names, so each maker looks after it has made its sandbox; of two that see each other
    /// neither keeps its own, and both try again after a while of their own.
    async fn make_named(&self, plan: &Plan, name: &SandboxName) -> Result<E2bSandbox> {
        for number in 0..NAME_TRIES {
            if number > 0 {
                sleep(NAME_PAUSE.mul_f64(fastrand::f64())).await;
            }
            if !self.with_metadata(&name_filter(name)).await?.is_empty() {
                if number == 0 {
                    break;
                }
                // Maybe one of those that will be taken back.
                continue;
            }
            let sandbox = self.make(plan).await?;
            let found = self.with_metadata(&name_filter(name)).await;
            let is_alone = found
                .as_ref()
                .is_ok_and(|rows| rows.iter().all(|row| row.sandbox_id == sandbox.access.id().as_str()));
            if is_alone {
                return Ok(sandbox);
            }
            self.destroy_all(std::slice::from_ref(sandbox.access.id())).await?;
            found?;
        }
        let message = format!("a sandbox of the name `{name}` exists already");
        Err(Error::new(ErrorKind::AlreadyExists, OPERATION, message)
            .with_backend(BACKEND)
            .with_resource(format!("sandbox `{name}`")))
    }

    async fn with_metadata(&self, metadata: &Metadata) -> Result<Vec<ListedSandbox>> {
        self.api.list(OPERATION, metadata, BOTH).try_collect().await
    }

    /// Destroys what must not be there; the error names what is left.
    async fn destroy_all(&self, ids: &[SandboxId]) -> Result<()> {
        for id in ids {
            self.leases.end(id);
            if let Err(error) = self.api.kill(OPERATION, id).await {
                return Err(error.with_left_behind(format!("sandbox `{id}`")));
            }
        }
        Ok(())
    }
}

/// An id that the API gave.
pub(crate) fn id_of(text: &str) -> Result<SandboxId> {
    SandboxId::new(text).map_err(|error| {
        Error::new(ErrorKind::Protocol, OPERATION, "the API answered an id that is none")
            .with_backend(BACKEND)
            .with_source(error)
    })
}

/// So that a handle can be passed on as the contract's.
impl E2bSandbox {
    pub(crate) fn shared(self) -> Arc<dyn sandbar_core::Sandbox> {
        Arc::new(self)
    }
}
