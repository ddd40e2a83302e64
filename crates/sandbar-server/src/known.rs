//! Which sandbox a request may mean. The one place where a tenant and a sandbox meet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::StatusCode;
use sandbar_core::{GetOptions, ProviderExt as _, Query, Result, Sandbox, SandboxId, SandboxRecord, State};

use crate::app::App;
use crate::error::{ApiError, ApiResult};
use crate::marks::Marks;
use crate::tenant::Tenant;

/// A sandbox of the server's, with what was read of it a moment ago.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) record: SandboxRecord,
    pub(crate) marks: Marks,
}

/// How much rarer than they take looks at all sandboxes are that requests cause: whoever asks for what is not there costs a fifth of a core at most.
const LOOK_PAUSE: u32 = 4;

/// Longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Whose each sandbox is, as far as that is known: it never changes. What is not known here is looked for among all sandboxes, and the backend is asked for
/// one only by its owner: otherwise the time of an answer would tell a foreign sandbox from none.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    tenants: Mutex<HashMap<SandboxId, String>>,
    last: tokio::sync::Mutex<Option<Look>>,
}

/// A look at all sandboxes.
#[derive(Clone, Copy, Debug)]
struct Look {
    began: Instant,
    ended: Instant,
}

impl Owners {
    /// Notes whose a new sandbox is.
    pub(crate) fn add(&self, tenant: &str, id: &SandboxId) {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.insert(id.clone(), tenant.to_owned());
    }

    /// Notes what a look at all sandboxes has found, and forgets the others: one that is too new for it is found again.
    pub(crate) fn found<'a>(&self, all: impl Iterator<Item = (&'a SandboxRecord, Marks)>) {
        let visible = all.filter(|(_, marks)| !marks.is_internal);
        let found = visible.map(|(record, marks)| (record.id.clone(), marks.tenant)).collect();
        *self.tenants.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }

    fn is_of(&self, tenant: &Tenant, id: &SandboxId) -> bool {
        let tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.get(id).is_some_and(|owner| *owner == tenant.id)
    }
}

/// Those of the server's own, with their marks.
pub(crate) fn marked(records: &[SandboxRecord]) -> impl Iterator<Item = (&SandboxRecord, Marks)> {
    records.iter().filter_map(|record| Some((record, Marks::of(record)?)))
}

impl App {
    /// The tenant's sandbox of this id. One that does not exist, is another's or is none of the server's is the same answer, by the same path.
    pub(crate) async fn sandbox(&self, tenant: &Tenant, id: &str) -> ApiResult<Known> {
        let absent = || ApiError::no_sandbox(id);
        let key = sandbox_id(id)?.ok_or_else(absent)?;
        if !self.owners.is_of(tenant, &key) {
            self.look_at_all().await?;
            if !self.owners.is_of(tenant, &key) {
                return Err(absent());
            }
        }
        match self.any_sandbox(&key).await? {
            Some(known) if known.marks.tenant == tenant.id && !known.marks.is_internal => Ok(known),
            _ => Err(absent()),
        }
    }

    /// Looks at all sandboxes that there are by now, once for all who wait for that.
    async fn look_at_all(&self) -> Result<()> {
        let asked = Instant::now();
        let mut last = self.owners.last.lock().await;
        if let Some(look) = *last {
            if look.began >= asked {
                return Ok(());
            }
            let pause = look.ended.duration_since(look.began) * LOOK_PAUSE;
            tokio::time::sleep(pause.saturating_sub(look.ended.elapsed()).min(LONGEST_PAUSE)).await;
        }
        let began = Instant::now();
        let records = self.provider.list_all(Query::new()).await?;
        self.owners.found(marked(&records));
        *last = Some(Look { began, ended: Instant::now() });
        Ok(())
    }

    /// What to answer where something failed that was asked of a sandbox: that it is gone or going, if that is why.
    pub(crate) async fn unless_gone(&self, tenant: &Tenant, id: &str, error: ApiError) -> ApiError {
        if error.status.is_client_error() && error.status != StatusCode::NOT_FOUND {
            return error;
        }
        match self.sandbox(tenant, id).await {
            Err(gone) if gone.status == StatusCode::NOT_FOUND => gone,
            Ok(known) if known.record.state == State::Destroying => {
                ApiError::conflict(format!("Sandbox \"{id}\" is being killed"))
            }
            _ => error,
        }
    }

    /// The sandbox of this id, whoever's it is. `None` is a positive answer.
    async fn any_sandbox(&self, id: &SandboxId) -> ApiResult<Option<Known>> {
        let Some(sandbox) = self.provider.get_opts(id, GetOptions::default()).await? else {
            return Ok(None);
        };
        let record = match sandbox.record().await {
            Ok(record) => record,
            Err(error) if error.kind() == sandbar_core::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(Marks::of(&record).map(|marks| Known { sandbox, record, marks }))
    }
}

/// The id in a path: `id`, or the older `id-client`. Another form is an error, one that no sandbox can have is `None`.
pub(crate) fn sandbox_id(text: &str) -> ApiResult<Option<SandboxId>> {
    let mut parts = text.split('-');
    let (id, rest) = (parts.next().unwrap_or_default(), parts.next());
    let is_valid = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    if parts.next().is_some() || !is_valid(id) || !rest.is_none_or(is_valid) {
        return Err(ApiError::bad_request("Invalid sandbox ID"));
    }
    Ok(SandboxId::new(id).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_at_most_one_dash() {
        assert_eq!(sandbox_id("iabc").unwrap().unwrap().as_str(), "iabc");
        assert_eq!(sandbox_id("iabc-client1").unwrap().unwrap().as_str(), "iabc");
        for bad in ["", "-", "a-", "a-b-c", "A", "../x", "a/b", "a%2e"] {
            assert!(sandbox_id(bad).is_err(), "{bad}");
        }
    }
}
