use std::time::Duration;

use sandbar_core::{EgressPolicy, Error, ErrorKind, Result, TemplateId};
use sandbar_http::Secret;

use crate::endpoint::{Endpoints, Origin, is_e2b_domain};
use crate::env::{self, Environment};

/// The backend's name.
pub(crate) const BACKEND: &str = "e2b";
/// The domain of E2B's cloud.
pub const DEFAULT_DOMAIN: &str = "e2b.app";
/// What sandboxes boot from unless told otherwise: the platform's own general template.
pub const DEFAULT_TEMPLATE: &str = "base";
/// Lifetime of a sandbox unless told otherwise: the reference's own hour, which every account may have.
pub const DEFAULT_LIFETIME: Duration = Duration::from_secs(3600);
/// The port that a preview is of unless told otherwise: where the field's front-end servers listen.
pub const DEFAULT_PREVIEW_PORT: u16 = 5173;

/// How to reach E2B. Everything but the key has a default; `Debug` never shows the key.
///
/// What is set here counts, then what [`E2bConfig::from_env`] found, then the default.
#[derive(Clone, Debug, Default)]
pub struct E2bConfig {
    api_key: Option<Secret>,
    domain: Option<String>,
    api_url: Option<String>,
    sandbox_url: Option<String>,
    template: Option<TemplateId>,
    preview_port: Option<u16>,
    lifetime: Option<Duration>,
    egress: Option<EgressPolicy>,
}

impl E2bConfig {
    /// Defaults throughout. The environment is not looked at.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the variables of E2B's own SDKs say: `E2B_API_KEY`, `E2B_DOMAIN`, `E2B_API_URL`, `E2B_SANDBOX_URL`, and `E2B_TEMPLATE_ID`. They are read
    /// now; a template id that is none is an error.
    pub fn from_env() -> Result<Self> {
        Self::of(Environment::read())
    }

    fn of(environment: Environment) -> Result<Self> {
        let Environment { api_key, domain, api_url, sandbox_url, template } = environment;
        let template = template.map(TemplateId::new).transpose().map_err(|error| {
            Error::new(ErrorKind::Config, "connect", format!("`{}` is not a template id", env::TEMPLATE_ID))
                .with_backend(BACKEND)
                .with_source(error)
        })?;
        Ok(Self { api_key, domain, api_url, sandbox_url, template, ..Self::default() })
    }

    /// Sets the key.
    pub fn with_api_key(mut self, key: impl Into<String>) -> Self {
        self.api_key = Some(Secret::new(key.into()));
        self
    }

    /// Sets the domain: `api.DOMAIN` is the control plane, and sandboxes are below it.
    pub fn with_domain(mut self, domain: impl Into<String>) -> Self {
        self.domain = Some(domain.into());
        self
    }

    /// Sets where the control plane is, such as `http://localhost:3000`.
    pub fn with_api_url(mut self, url: impl Into<String>) -> Self {
        self.api_url = Some(url.into());
        self
    }

    /// Sets where all guests are; they are told apart by headers there.
    pub fn with_sandbox_url(mut self, url: impl Into<String>) -> Self {
        self.sandbox_url = Some(url.into());
        self
    }

    /// Sets what sandboxes boot from that name no template.
    pub fn with_template(mut self, template: TemplateId) -> Self {
        self.template = Some(template);
        self
    }

    /// Sets the port that a preview is of if none is named.
    pub fn with_preview_port(mut self, port: u16) -> Self {
        self.preview_port = Some(port);
        self
    }

    /// Sets the lifetime of sandboxes that ask for none. More than the account may have is refused by E2B at creation.
    pub fn with_lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = Some(lifetime);
        self
    }

    /// Sets what sandboxes may reach that ask for nothing. Unless set, nothing, as everywhere.
    pub fn with_egress(mut self, policy: EgressPolicy) -> Self {
        self.egress = Some(policy);
        self
    }

    /// The key, or what to do about its absence.
    pub(crate) fn api_key(&self) -> Result<&Secret> {
        self.api_key.as_ref().filter(|key| !key.expose().is_empty()).ok_or_else(|| {
            Error::new(ErrorKind::Unauthenticated, "connect", "there is no API key for E2B")
                .with_backend(BACKEND)
                .with_hint(format!("set `{}`, or give it with `E2bConfig::with_api_key`", env::API_KEY))
        })
    }

    /// Whether it is E2B's own cloud, so that what its documentation says holds; of another server only its answers are known.
    pub(crate) fn is_e2b_itself(&self) -> bool {
        let is_set = |url: &Option<String>| url.as_ref().is_some_and(|url| !url.is_empty());
        !is_set(&self.api_url) && !is_set(&self.sandbox_url) && is_e2b_domain(self.domain())
    }

    /// The domain of the cloud.
    pub(crate) fn domain(&self) -> &str {
        self.domain.as_deref().filter(|domain| !domain.is_empty()).unwrap_or(DEFAULT_DOMAIN)
    }

    /// Where the control plane is.
    pub(crate) fn api(&self) -> Result<Origin> {
        match self.api_url.as_deref().filter(|url| !url.is_empty()) {
            Some(url) => Origin::parse("the API's URL", url),
            None => Origin::parse("the domain", &format!("https://api.{}", self.domain())),
        }
    }

    /// Where all guests are, if they are at one place.
    pub(crate) fn guests(&self) -> Result<Option<Origin>> {
        let url = self.sandbox_url.as_deref().filter(|url| !url.is_empty());
        url.map(|url| Origin::parse("the sandboxes' URL", url)).transpose()
    }

    /// Where sandboxes are.
    pub(crate) fn endpoints(&self) -> Result<Endpoints> {
        Ok(Endpoints { guests: self.guests()?, domain: self.domain().to_owned() })
    }

    /// What sandboxes boot from that name no template.
    pub fn template(&self) -> &str {
        self.template.as_ref().map_or(DEFAULT_TEMPLATE, TemplateId::as_str)
    }

    /// The port that a preview is of if none is named.
    pub fn preview_port(&self) -> u16 {
        self.preview_port.unwrap_or(DEFAULT_PREVIEW_PORT)
    }

    /// The lifetime of sandboxes that ask for none.
    pub fn lifetime(&self) -> Duration {
        self.lifetime.unwrap_or(DEFAULT_LIFETIME)
    }

    /// What sandboxes may reach that ask for nothing.
    pub fn egress(&self) -> EgressPolicy {
        self.egress.clone().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> Environment {
        Environment {
            api_key: Some(Secret::new("from-env")),
            template: Some("env-template".into()),
            ..Environment::default()
        }
    }

    #[test]
    fn what_is_set_counts_then_the_environment_then_the_default() {
        let config = E2bConfig::of(environment()).unwrap();
        assert_eq!(config.api_key().unwrap().expose(), "from-env");
        assert_eq!((config.template(), config.domain()), ("env-template", DEFAULT_DOMAIN));
        let config = config.with_api_key("set").with_template(TemplateId::new("mine").unwrap());
        assert_eq!(config.api_key().unwrap().expose(), "set");
        assert_eq!(config.template(), "mine");
        let bare = E2bConfig::new();
        assert_eq!((bare.template(), bare.preview_port()), ("base", 5173));
        assert_eq!(bare.lifetime(), Duration::from_secs(3600));
        assert_eq!(bare.egress(), EgressPolicy::DenyAll);
    }

    #[test]
    fn a_missing_key_is_told_when_it_is_needed_with_both_ways_to_give_it() {
        for config in [E2bConfig::new(), E2bConfig::of(environment()).unwrap().with_api_key("")] {
            let error = config.api_key().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unauthenticated);
            let hint = error.hint().unwrap();
            assert!(hint.contains("E2B_API_KEY") && hint.contains("with_api_key"), "{hint}");
        }
    }

    #[test]
    fn debug_shows_no_key() {
        let shown = format!("{:?}", E2bConfig::new().with_api_key("s3cret"));
        assert!(shown.contains("api_key") && !shown.contains("s3cret"), "{shown}");
    }

    #[test]
    fn a_template_id_that_is_none_is_an_error_that_names_the_variable() {
        let environment = Environment { template: Some("a b".into()), ..Environment::default() };
        let error = E2bConfig::of(environment).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("E2B_TEMPLATE_ID"), "{error}");
    }

    #[test]
    fn the_api_is_where_its_url_or_the_domain_says() {
        let config = E2bConfig::new();
        assert_eq!(config.api().unwrap().as_str(), "https://api.e2b.app");
        assert_eq!(config.clone().with_domain("x.test").api().unwrap().as_str(), "https://api.x.test");
        let config = config.with_domain("x.test").with_api_url("http://localhost:3000/");
        assert_eq!(config.api().unwrap().as_str(), "http://localhost:3000");
        assert!(config.guests().unwrap().is_none());
        assert!(config.with_sandbox_url("nowhere").guests().is_err());
    }
}
