//! Which sandbox a request may mean. The one place where a tenant and a sandbox meet.

use std::sync::Arc;

use http::StatusCode;
use sandbar_core::{GetOptions, Sandbox, SandboxId, SandboxRecord, State};

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

impl App {
    /// The tenant's sandbox of this id. One that does not exist, is another's or is none of the server's is the same answer, by the same path.
    pub(crate) async fn sandbox(&self, tenant: &Tenant, id: &str) -> ApiResult<Known> {
        match self.any_sandbox(id).await? {
            Some(known) if known.marks.tenant == tenant.id && !known.marks.is_internal => Ok(known),
            _ => Err(ApiError::no_sandbox(id)),
        }
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

    /// The sandbox of this id, whoever's it is: for requests that are let in by a token of the sandbox' own. `None` is a positive answer.
    pub(crate) async fn any_sandbox(&self, id: &str) -> ApiResult<Option<Known>> {
        let Some(id) = sandbox_id(id)? else { return Ok(None) };
        let Some(sandbox) = self.provider.get_opts(&id, GetOptions::default()).await? else {
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
