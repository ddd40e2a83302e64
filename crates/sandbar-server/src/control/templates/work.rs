use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use sandbar_core::{ErrorKind, TemplateId};
use sandbar_wire::e2b::BuildOrder;
use tokio::sync::{AcquireError, Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::path::TemplatePath;
use super::register::require_builds;
use super::run::Job;
use super::status::build_of;
use super::upload::Uploads;
use crate::app::App;
use crate::control::extract::Json;
use crate::error::{ApiError, ApiResult};
use crate::store::BuildStatus;
use crate::tenant::Tenant;

/// Builds that are done at once, of all tenants; others wait. A step is a sandbox with limits of its own, so a few keep a machine busy.
const AT_ONCE: usize = 4;

/// Builds of one tenant that are done at once: half, so that nobody makes all others wait.
const AT_ONCE_OF_TENANT: usize = AT_ONCE / 2;

/// Builds that a tenant may have started and not ended: E2B's own bound.
const MAX_OF_TENANT: usize = 20;

/// How long builds and snapshots under way are waited for when the server stops.
const GRACE: Duration = Duration::from_secs(10);

/// Between two looks for templates that nobody needs any more.
const SWEEP: Duration = Duration::from_secs(60);

/// Builds and snapshots under way, and what is to be cleared away after them.
#[derive(Debug)]
pub(crate) struct TemplateWork {
    pub(super) uploads: Uploads,
    pub(super) tasks: TaskTracker,
    slots: Semaphore,
    slots_of_tenants: Mutex<HashMap<String, Arc<Semaphore>>>,
    stop: CancellationToken,
    running: Mutex<HashMap<String, Running>>,
    swept: Notify,
}

#[derive(Debug)]
struct Running {
    tenant: String,
    stop: CancellationToken,
}

impl Default for TemplateWork {
    fn default() -> Self {
        Self {
            uploads: Uploads::default(),
            tasks: TaskTracker::new(),
            slots: Semaphore::new(AT_ONCE),
            slots_of_tenants: Mutex::default(),
            stop: CancellationToken::new(),
            running: Mutex::default(),
            swept: Notify::new(),
        }
    }
}

/// A build under way; it is none any more once this is dropped.
pub(super) struct Ticket {
    app: Arc<App>,
    build: String,
    pub(super) stop: CancellationToken,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.app.builds.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.build);
    }
}

/// The right to do a build now.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    _one: SemaphorePermit<'a>,
    _of_tenant: OwnedSemaphorePermit,
}

impl TemplateWork {
    /// Waits for the turn of one of the tenant's builds.
    pub(super) async fn slot(&self, tenant: &str) -> Result<Slot<'_>, AcquireError> {
        let of_tenant = {
            let mut all = self.slots_of_tenants.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, slots| {
                Arc::strong_count(slots) > 1 || slots.available_permits() < AT_ONCE_OF_TENANT
            });
            let slots = all.entry(tenant.to_owned());
            Arc::clone(slots.or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE_OF_TENANT))))
        };
        let of_tenant = of_tenant.acquire_owned().await?;
        Ok(Slot { _one: self.slots.acquire().await?, _of_tenant: of_tenant })
    }

    /// Ends these builds.
    pub(super) fn cancel(&self, builds: &[String]) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        for one in builds.iter().filter_map(|build| running.get(build)) {
            one.stop.cancel();
        }
    }

    /// There may be something to clear away.
    pub(super) fn kick(&self) {
        self.swept.notify_one();
    }

    /// Ends all builds, and waits until what is under way is written down; with a bound.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(GRACE, self.tasks.wait()).await.is_err() {
            tracing::warn!("builds or snapshots did not end in time: the next start marks them as failed");
        }
    }
}

/// `POST /v2/templates/{id}/builds/{build}`
pub(super) async fn start(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    path: TemplatePath,
    Json(asked): Json<BuildOrder>,
) -> ApiResult<StatusCode> {
    require_builds(&*app.provider)?;
    let (template, build) = build_of(&app, &tenant, &path).await?;
    if build.status != BuildStatus::Waiting {
        return Err(not_waiting(&build.id, build.status.as_str()));
    }
    let order = app.check_order(&tenant, asked).await?;
    let ticket = ticket(&app, &tenant, &build.id)?;
    if !app.store.start_build(&build.id).await? {
        return Err(not_waiting(&build.id, "started"));
    }
    let job = Job { app: Arc::clone(&app), tenant: tenant.id, template, build, order };
    app.builds.tasks.spawn(job.run(ticket));
    Ok(StatusCode::ACCEPTED)
}

fn ticket(app: &Arc<App>, tenant: &Tenant, build: &str) -> ApiResult<Ticket> {
    let mut running = app.builds.running.lock().unwrap_or_else(PoisonError::into_inner);
    if running.values().filter(|one| one.tenant == tenant.id).count() >= MAX_OF_TENANT {
        let message = format!("{MAX_OF_TENANT} builds are under way: wait until one has ended");
        return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, message));
    }
    let stop = app.builds.stop.child_token();
    let entry = running.entry(build.to_owned());
    let std::collections::hash_map::Entry::Vacant(entry) = entry else {
        return Err(not_waiting(build, "started"));
    };
    entry.insert(Running { tenant: tenant.id.clone(), stop: stop.clone() });
    drop(running);
    Ok(Ticket { app: Arc::clone(app), build: build.to_owned(), stop })
}

fn not_waiting(build: &str, status: &str) -> ApiError {
    ApiError::bad_request(format!("build '{build}' is {status}: only one that is waiting can be started"))
}

impl App {
    /// What a server that is no more left: once, at the start.
    pub(crate) async fn settle_builds(&self) -> sandbar_core::Result<()> {
        let failed = self.store.fail_interrupted_builds().await?;
        if failed > 0 {
            tracing::warn!(failed, "builds that were under way when the server stopped have failed");
        }
        Ok(())
    }

    /// Removes templates that no tag names any more, from time to time and when there are some, until it is dropped.
    pub(crate) async fn keep_templates(&self) {
        loop {
            if let Err(error) = self.sweep_templates().await {
                tracing::warn!(%error, "templates that nobody needs could not be removed: there is another try");
            }
            let _ = tokio::time::timeout(SWEEP, self.builds.swept.notified()).await;
        }
    }

    async fn sweep_templates(&self) -> sandbar_core::Result<()> {
        let Some(templates) = self.provider.templates() else { return Ok(()) };
        for provider in self.store.doomed_templates().await? {
            let removed = match TemplateId::new(provider.as_str()) {
                Ok(id) => templates.remove(&id).await,
                // No template can have such an id.
                Err(_) => Ok(false),
            };
            match removed {
                Ok(_) => self.store.forget_doomed(&provider).await?,
                // A sandbox needs it: later.
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => tracing::warn!(template = provider, %error, "a template could not be removed"),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn no_tenant_has_all_turns() {
        let work = TemplateWork::default();
        let mut held = Vec::new();
        for _ in 0..AT_ONCE_OF_TENANT {
            held.push(work.slot("greedy").now_or_never().expect("a turn").unwrap());
        }
        assert!(work.slot("greedy").now_or_never().is_none(), "that is its share");
        held.push(work.slot("other").now_or_never().expect("others have theirs").unwrap());
        held.clear();
        assert!(work.slot("greedy").now_or_never().is_some(), "they are given back");
        drop(work.slot("third").await);
        assert!(work.slots_of_tenants.lock().unwrap().len() <= 2, "nothing is kept of who has none");
    }
}
