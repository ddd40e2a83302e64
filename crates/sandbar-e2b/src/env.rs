//! The only place that reads the environment. The names are those of E2B's own SDKs.

use sandbar_http::Secret;

/// The key.
pub(crate) const API_KEY: &str = "E2B_API_KEY";
/// The domain of the cloud.
pub(crate) const DOMAIN: &str = "E2B_DOMAIN";
/// Where the control plane is, instead of at the domain's `api.`.
pub(crate) const API_URL: &str = "E2B_API_URL";
/// Where guests are, instead of below the domain.
pub(crate) const SANDBOX_URL: &str = "E2B_SANDBOX_URL";
/// What sandboxes boot from that name no template.
pub(crate) const TEMPLATE_ID: &str = "E2B_TEMPLATE_ID";

/// What the environment says. A variable that is empty counts as not set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    pub(crate) api_key: Option<Secret>,
    pub(crate) domain: Option<String>,
    pub(crate) api_url: Option<String>,
    pub(crate) sandbox_url: Option<String>,
    pub(crate) template: Option<String>,
}

impl Environment {
    /// Reads it.
    pub(crate) fn read() -> Self {
        let text = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            api_key: text(API_KEY).map(Secret::new),
            domain: text(DOMAIN),
            api_url: text(API_URL),
            sandbox_url: text(SANDBOX_URL),
            template: text(TEMPLATE_ID),
        }
    }
}
