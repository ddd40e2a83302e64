use serde::{Deserialize, Serialize};

/// What a sandbox may reach. Means the same on every backend; what a backend can't enforce it refuses, before any effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EgressPolicy {
    /// Nothing.
    #[default]
    DenyAll,
    /// Public addresses; never the host, private, link-local or metadata addresses.
    AllowAll,
}
