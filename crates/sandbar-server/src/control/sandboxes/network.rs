use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use sandbar_core::{SandboxExt as _, State as Core};
use sandbar_wire::e2b::{NetworkConfig, NetworkUpdate, SandboxDetail};

use super::egress::Egress;
use crate::app::App;
use crate::control::extract::{OptionalJson, PathId};
use crate::error::{ApiError, ApiResult};
use crate::marks::Marks;
use crate::store::StoredNetwork;
use crate::tenant::Tenant;

/// What stands for the value of a header, which is a secret.
const HIDDEN: &str = "***";

/// `PUT /sandboxes/{id}/network`: what is not named is cleared. Who reaches the sandbox stays as it was.
pub(super) async fn put(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    PathId(id): PathId,
    OptionalJson(asked): OptionalJson<NetworkUpdate>,
) -> ApiResult<StatusCode> {
    let policy = Egress::of_update(&asked).policy(app.config.default_egress)?;
    let known = app.sandbox(&tenant, &id).await?;
    let _turn = app.turns.take(known.record.id.as_str()).await;
    let known = app.sandbox(&tenant, &id).await?;
    match known.record.state {
        Core::Running => {}
        Core::Destroying => return Err(ApiError::no_sandbox(&id)),
        state => {
            let message = format!("the network of sandbox \"{id}\" can't be changed: it is {state}");
            return Err(ApiError::conflict(message));
        }
    }
    if let Err(error) = known.sandbox.require_network()?.set_policy(policy).await {
        return Err(app.unless_gone(&tenant, &id, error.into()).await);
    }
    let NetworkUpdate { allow_out, deny_out, rules, egress_proxy: _, allow_internet_access } = asked;
    let config = NetworkConfig { allow_out, deny_out, rules, ..NetworkConfig::default() };
    app.store.set_network(&known.record.id, stored(Some(config), allow_internet_access)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What is remembered of what was said: no value of a header, and nothing that the marks know.
pub(super) fn stored(config: Option<NetworkConfig>, internet: Option<bool>) -> StoredNetwork {
    let config = config.map(|mut config| {
        config.allow_public_traffic = None;
        config.mask_request_host = None;
        config.egress_proxy = None;
        config.https_ports = None;
        let transforms = config.rules.iter_mut().flat_map(|rules| rules.values_mut().flatten());
        for headers in transforms.filter_map(|rule| rule.transform.as_mut()?.headers.as_mut()) {
            for value in headers.values_mut() {
                HIDDEN.clone_into(value);
            }
        }
        config
    });
    let config = config.filter(|config| *config != NetworkConfig::default());
    StoredNetwork { config: config.and_then(|config| serde_json::to_string(&config).ok()), internet }
}

/// Fills in what was said of the network.
pub(super) fn show(detail: &mut SandboxDetail, stored: StoredNetwork, marks: &Marks) {
    let said = stored.config.and_then(|text| serde_json::from_str(&text).ok());
    let mut config: NetworkConfig = said.unwrap_or_default();
    config.allow_public_traffic = marks.is_private.then_some(false);
    config.mask_request_host.clone_from(&marks.mask_host);
    detail.network = (config != NetworkConfig::default()).then_some(config);
    detail.allow_internet_access = stored.internet;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_has_no_secret() {
        let text = r#"{"allowOut":["a.test"],"denyOut":["0.0.0.0/0"],"maskRequestHost":"m",
            "rules":{"a.test":[{"transform":{"headers":{"X-Key":"s3cret"}}}]}}"#;
        let stored = stored(Some(serde_json::from_str(text).unwrap()), Some(true));
        let kept = stored.config.as_deref().unwrap();
        assert!(kept.contains("a.test") && kept.contains("X-Key") && !kept.contains("s3cret"), "{kept}");
        assert!(!kept.contains("mask"));
        assert_eq!(super::stored(Some(NetworkConfig::default()), None), StoredNetwork::default());
    }
}
