use std::sync::Arc;

use sandbar_core::{Error, Result, SandboxProvider};
use sandbar_observe::{AuditConfig, AuditLog, Observation, Observed};

/// Opens the place that `url` names.
///
/// | URL | place |
/// |---|---|
/// | `local:` | this Linux machine, with the data folder that the environment says (`$SANDBAR_HOME`, else the usual one) |
/// | `local:/path` | this Linux machine, with its data in `/path`; a relative one is taken from the current folder, as `$SANDBAR_HOME` is |
/// | `e2b:` | E2B's cloud, with the key in `$E2B_API_KEY`, and what else the variables of E2B's own SDKs say |
/// | `e2b:example.com` | the same at another domain, where `api.example.com` is the control plane |
/// | `e2b:http://host:port` | a server that speaks E2B's API, control plane and guests at one address, as `sandbar serve` does |
///
/// An unknown scheme or a malformed rest is [`InvalidInput`](sandbar_core::ErrorKind::InvalidInput), a known scheme that this build lacks is
/// [`Unsupported`](sandbar_core::ErrorKind::Unsupported). Nothing is made or contacted yet beyond what the backend's own `open` says.
///
/// ```
/// # use sandbar::ErrorKind;
/// assert_eq!(sandbar::connect("fly:").unwrap_err().kind(), ErrorKind::Unsupported);
/// assert_eq!(sandbar::connect("moon:").unwrap_err().kind(), ErrorKind::InvalidInput);
/// ```
pub fn connect(url: &str) -> Result<Arc<dyn SandboxProvider>> {
    open(url, None)
}

/// As [`connect`], and tells what is done as `observation` says. With an audit record, the ends of sandboxes that nobody waits for are recorded
/// too, where the place can do that: `local:` can.
pub fn connect_observed(url: &str, observation: Observation) -> Result<Arc<dyn SandboxProvider>> {
    let provider = open(url, observation.audit().map(AuditLog::config))?;
    Ok(Arc::new(Observed::over(provider, observation)))
}

fn open(url: &str, audit: Option<&AuditConfig>) -> Result<Arc<dyn SandboxProvider>> {
    let (scheme, rest) = url.split_once(':').ok_or_else(|| {
        let message = format!("`{}` is not a provider URL: no scheme before a `:`", url.escape_debug());
        Error::invalid("connect", message).with_hint("the sandboxes of this machine are `local:`")
    })?;
    match scheme {
        "local" => local(rest, audit),
        "e2b" => e2b(rest),
        "fly" => Err(not_in_this_build(scheme)),
        _ => Err(Error::invalid("connect", format!("unknown provider `{}:`", scheme.escape_debug()))
            .with_hint("the sandboxes of this machine are `local:`")),
    }
}

#[cfg(feature = "local")]
fn local(home: &str, audit: Option<&AuditConfig>) -> Result<Arc<dyn SandboxProvider>> {
    let mut config = sandbar_local::LocalConfig::default();
    if !home.is_empty() {
        let complain = |why: &str| {
            let message = format!("`{}` is not a valid data folder: {why}", home.escape_debug());
            Error::invalid("connect", message).with_hint("expected a path, such as `local:/path/to/data`")
        };
        if home.contains('\0') {
            return Err(complain("it holds a NUL byte"));
        }
        // A shell leaves it as it is here, and nobody means a folder of this name.
        if home.starts_with('~') {
            return Err(complain("`~` is not replaced in it"));
        }
        config = config.with_home(home);
    }
    if let Some(audit) = audit {
        config = config.with_audit(audit.clone());
    }
    Ok(Arc::new(sandbar_local::LocalProvider::open(config)?))
}

#[cfg(not(feature = "local"))]
fn local(_home: &str, _audit: Option<&AuditConfig>) -> Result<Arc<dyn SandboxProvider>> {
    Err(not_in_this_build("local"))
}

#[cfg(feature = "e2b")]
fn e2b(place: &str) -> Result<Arc<dyn SandboxProvider>> {
    let mut config = sandbar_e2b::E2bConfig::from_env()?;
    if place.contains("://") {
        config = config.with_api_url(place).with_sandbox_url(place);
    } else if !place.is_empty() {
        config = config.with_domain(place);
    }
    Ok(Arc::new(sandbar_e2b::E2bProvider::open(config)?))
}

#[cfg(not(feature = "e2b"))]
fn e2b(_place: &str) -> Result<Arc<dyn SandboxProvider>> {
    Err(not_in_this_build("e2b"))
}

fn not_in_this_build(scheme: &str) -> Error {
    Error::unsupported("connect", format!("provider `{scheme}:`"), "it is not in this build")
}

#[cfg(test)]
mod tests {
    use sandbar_core::ErrorKind;

    use super::*;

    #[test]
    fn malformed_urls_are_invalid_input() {
        for url in ["", "local", "/path", "moon:", "LOCAL:", " local:"] {
            assert_eq!(connect(url).unwrap_err().kind(), ErrorKind::InvalidInput, "{url}");
        }
    }

    #[test]
    #[cfg(feature = "local")]
    fn what_is_no_data_folder_is_refused() {
        for url in ["local:/a\0b", "local:~/data", "local:~"] {
            assert_eq!(connect(url).unwrap_err().kind(), ErrorKind::InvalidInput, "{url}");
        }
    }

    #[test]
    #[cfg(feature = "local")]
    fn a_relative_data_folder_is_below_the_current_one() {
        let config = sandbar_local::LocalConfig::new().with_home("no-such-folder/data");
        let wanted = std::path::absolute("no-such-folder/data").unwrap();
        assert_eq!(sandbar_local::LocalProvider::open(config).unwrap().home(), wanted);
        assert!(connect("local:no-such-folder/data").is_ok());
    }

    /// A key is needed when something is sent, and no sooner.
    #[test]
    #[cfg(feature = "e2b")]
    fn places_of_e2b_are_opened_without_asking_anybody() {
        for url in ["e2b:", "e2b:x.test", "e2b:http://localhost:3000", "e2b:https://api.x.test/base/"] {
            assert_eq!(connect(url).unwrap().name(), "e2b", "{url}");
        }
        for url in ["e2b:ftp://x.test", "e2b:https://", "e2b:a b"] {
            assert_eq!(connect(url).unwrap_err().kind(), ErrorKind::Config, "{url}");
        }
    }

    #[test]
    fn known_places_that_are_not_here_are_unsupported() {
        let urls = if cfg!(feature = "e2b") { &["fly:org"][..] } else { &["e2b:", "fly:org"] };
        for url in urls {
            let error = connect(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{url}");
            assert!(error.to_string().contains("not in this build"), "{error}");
        }
    }
}
