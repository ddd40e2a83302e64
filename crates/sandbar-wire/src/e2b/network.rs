use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Everything, as E2B's clients write it.
pub const ALL_TRAFFIC: &str = "0.0.0.0/0";

/// What a sandbox reaches and who reaches it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkConfig {
    /// Addresses, ranges and names that it reaches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_out: Option<Vec<String>>,
    /// Addresses and ranges that it does not reach, of what is not allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny_out: Option<Vec<String>>,
    /// What becomes of requests to a domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<BTreeMap<String, Vec<NetworkRule>>>,
    /// Whether its ports are open to everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_public_traffic: Option<bool>,
    /// What its ports are told as `Host`; `${PORT}` stands for the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask_request_host: Option<String>,
    /// A proxy that it reaches everything by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_proxy: Option<EgressProxy>,
    /// Ports that speak TLS themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub https_ports: Option<Vec<u16>>,
}

/// `PUT /sandboxes/{id}/network`. What is absent is cleared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkUpdate {
    /// As of [`NetworkConfig`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_out: Option<Vec<String>>,
    /// As of [`NetworkConfig`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny_out: Option<Vec<String>>,
    /// As of [`NetworkConfig`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<BTreeMap<String, Vec<NetworkRule>>>,
    /// As of [`NetworkConfig`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_proxy: Option<EgressProxy>,
    /// Whether it reaches anything.
    #[serde(rename = "allow_internet_access", default, skip_serializing_if = "Option::is_none")]
    pub allow_internet_access: Option<bool>,
}

/// What becomes of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkRule {
    /// What is changed in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<NetworkTransform>,
}

/// What is changed in a request.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkTransform {
    /// Headers that it gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
}

impl fmt::Debug for NetworkTransform {
    /// Names only: values are often secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.headers.iter().flat_map(BTreeMap::keys)).finish()
    }
}

/// A proxy that a sandbox reaches everything by.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressProxy {
    /// Host and port.
    pub address: String,
    /// Who asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// The password; never answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
}

impl fmt::Debug for EgressProxy {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressProxy").field("address", &self.address).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let text = r#"{"allowOut":["a.test"],"rules":{"a.test":[{"transform":{"headers":{"X-Key":"s3cret"}}}]},
            "egressProxy":{"address":"p:1","password":"s3cret"}}"#;
        let config: NetworkConfig = serde_json::from_str(text).unwrap();
        let shown = format!("{config:?}");
        assert!(shown.contains("X-Key") && !shown.contains("s3cret"), "{shown}");
        let update: NetworkUpdate = serde_json::from_str(r#"{"allow_internet_access":false}"#).unwrap();
        assert_eq!(update.allow_internet_access, Some(false));
    }
}
