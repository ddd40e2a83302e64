//! Where the control plane, guests and ports are. Pure: nothing is looked up.

use std::fmt;

use http::Uri;
use sandbar_core::{Error, ErrorKind, Result, SandboxId};

use crate::config::BACKEND;

/// The port of a guest's own API.
pub(crate) const GUEST_PORT: u16 = 49_983;

/// Domains of which E2B serves all guests at `sandbox.DOMAIN`, told apart by headers. Elsewhere each guest has a host name of its own.
const SHARED_HOST_DOMAINS: &[&str] = &[
    "e2b.app",
    "e2b.dev",
    "e2b.pro",
    "e2b-staging.dev",
    "e2b-tango.dev",
    "e2b-juliett.dev",
    "foxtrot-2.e2b.dev",
];

/// Whether a domain is E2B's own.
pub(crate) fn is_e2b_domain(domain: &str) -> bool {
    SHARED_HOST_DOMAINS.contains(&domain)
}

/// Scheme, host and port, and at most a path to prefix; without a slash at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin(String);

impl Origin {
    /// Reads `url`, which is of `what`.
    pub(crate) fn parse(what: &str, url: &str) -> Result<Self> {
        let refused = |why: &str| {
            let message = format!("{what} is not usable: {why}");
            Err(Error::new(ErrorKind::Config, "connect", message)
                .with_backend(BACKEND)
                .with_hint("expected `https://host` or `http://host:port`"))
        };
        // What is refused may hold a password, so it is not repeated.
        let Ok(uri) = url.parse::<Uri>() else { return refused("it is not a URL") };
        if !matches!(uri.scheme_str(), Some("https" | "http")) {
            return refused("it has no scheme `https` or `http`");
        }
        let Some(authority) = uri.authority() else { return refused("it has no host") };
        if authority.as_str().contains('@') {
            return refused("it holds a user's name");
        }
        if uri.query().is_some() || url.contains('#') {
            return refused("it has more than a host and a path");
        }
        Ok(Self(url.trim_end_matches('/').to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    fn scheme(&self) -> &str {
        self.0.split_once("://").map_or("https", |(scheme, _)| scheme)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where sandboxes are.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    /// One place for all guests, if it was set.
    pub(crate) guests: Option<Origin>,
    /// The domain that counts where the API names none.
    pub(crate) domain: String,
}

impl Endpoints {
    /// Where the guest's own API is, with routing headers. `domain` is what the API said of this sandbox.
    pub(crate) fn guest(&self, id: &SandboxId, domain: Option<&str>) -> String {
        if let Some(origin) = &self.guests {
            return origin.to_string();
        }
        let domain = self.domain_of(domain);
        if is_e2b_domain(domain) {
            format!("https://sandbox.{domain}")
        } else {
            self.host(id, GUEST_PORT, Some(domain))
        }
    }

    /// Where the guest's own API is at a host of its own, which long transfers do not share with others.
    pub(crate) fn direct_guest(&self, id: &SandboxId, domain: Option<&str>) -> String {
        match &self.guests {
            Some(origin) => origin.to_string(),
            None => self.host(id, GUEST_PORT, domain),
        }
    }

    /// Where `port` of a sandbox is.
    pub(crate) fn host(&self, id: &SandboxId, port: u16, domain: Option<&str>) -> String {
        let scheme = self.guests.as_ref().map_or("https", Origin::scheme);
        format!("{scheme}://{port}-{id}.{}", self.domain_of(domain))
    }

    fn domain_of<'a>(&'a self, said: Option<&'a str>) -> &'a str {
        said.filter(|domain| !domain.is_empty()).unwrap_or(&self.domain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> SandboxId {
        SandboxId::new("iabc").unwrap()
    }

    #[test]
    fn guests_are_at_the_shared_host_of_a_domain_that_has_one() {
        let at = |domain: &str| Endpoints { guests: None, domain: domain.into() };
        assert_eq!(at("e2b.app").guest(&id(), None), "https://sandbox.e2b.app");
        assert_eq!(at("e2b.app").guest(&id(), Some("")), "https://sandbox.e2b.app");
        assert_eq!(at("e2b.app").guest(&id(), Some("x.test")), "https://49983-iabc.x.test");
        assert_eq!(at("x.test").guest(&id(), None), "https://49983-iabc.x.test");
        assert_eq!(at("e2b.app").direct_guest(&id(), None), "https://49983-iabc.e2b.app");
        assert_eq!(at("e2b.app").host(&id(), 5173, None), "https://5173-iabc.e2b.app");
    }

    #[test]
    fn one_place_for_all_guests_counts_before_every_domain() {
        let origin = Origin::parse("a URL", "http://localhost:3000/").unwrap();
        let endpoints = Endpoints { guests: Some(origin), domain: "e2b.app".into() };
        assert_eq!(endpoints.guest(&id(), Some("x.test")), "http://localhost:3000");
        assert_eq!(endpoints.direct_guest(&id(), None), "http://localhost:3000");
        assert_eq!(endpoints.host(&id(), 80, Some("x.test:3000")), "http://80-iabc.x.test:3000");
    }

    #[test]
    fn what_is_no_place_is_refused_and_not_repeated() {
        for url in
            ["", "host", "ftp://host", "https://", "https://user:s3cret@host", "https://h?q=1", "https://h#x"]
        {
            let error = Origin::parse("a URL", url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(!format!("{error} {error:?}").contains("s3cret"));
        }
        assert_eq!(Origin::parse("a URL", "https://h/api/").unwrap().as_str(), "https://h/api");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_place_or_refused(url in ".*") {
            let _ = Origin::parse("a URL", &url);
        }
    }
}
