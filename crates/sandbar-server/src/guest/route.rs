use std::borrow::Cow;

use http::header::{FORWARDED, HOST, ORIGIN};
use http::{HeaderMap, HeaderName, Method, StatusCode, Uri};

use super::host;
use crate::error::{ApiError, ApiResult};

/// Which sandbox a request is for.
pub(crate) const ID_HEADER: HeaderName = HeaderName::from_static("e2b-sandbox-id");
/// What a proxy says of whom it asks for.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Which port of it.
pub(crate) const PORT_HEADER: HeaderName = HeaderName::from_static("e2b-sandbox-port");

/// Characters of a name that are shown: as many as one may have.
const MAX_SHOWN: usize = 253;

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// To a port of a sandbox.
    Sandbox {
        /// The sandbox' id, as it was given, and well-formed.
        id: String,
        /// The port inside.
        port: u16,
    },
    /// To the guest of the sandbox whose token signed its URL.
    Signed,
    /// To the control plane.
    Control,
}

/// Under which names the server is reached.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// The domain of sandboxes, without its port, in lower case.
    domain: Option<String>,
    /// The host of the server's own origin.
    own: Option<String>,
    /// Whether any other name is somebody else's: it listens where nothing but this machine reaches it.
    is_loopback: bool,
}

impl Names {
    pub(crate) fn new(domain: Option<&str>, origin: &str, is_loopback: bool) -> Self {
        let own = origin.split_once("://").map_or(origin, |(_, rest)| rest);
        let own = own.split('/').next().unwrap_or_default();
        Self { domain: domain.and_then(host::name_of), own: host::name_of(own), is_loopback }
    }

    /// Whether routing headers are believed under this name: where names of sandboxes can't be had, or nobody asked for one. Under any other a web page could
    /// send them, to a name of its own that it has lead here.
    fn is_shared(&self, name: &str) -> bool {
        let of_domain = || host::label_below(name, self.domain.as_deref()?);
        host::is_plain(name) || self.own.as_deref() == Some(name) || of_domain() == Some("sandbox")
    }

    /// Whether this is a name of the server's or of its sandboxes.
    fn is_known(&self, name: &str) -> bool {
        let domain = self.domain.as_deref();
        self.is_shared(name)
            || host::label_below(name, "localhost").is_some()
            || domain.is_some_and(|domain| name == domain || host::label_below(name, domain).is_some())
    }

    /// Lets a request for the control plane pass, unless a web page of another's sends it: loopback is no boundary to a browser on this machine.
    pub(crate) fn admit(&self, uri: &Uri, headers: &HeaderMap) -> ApiResult<()> {
        let name = authority(uri, headers)?.and_then(|authority| host::name_of(&authority));
        if let Some(name) = name.filter(|name| self.is_loopback && !self.is_known(name)) {
            return Err(ApiError::new(
                StatusCode::FORBIDDEN,
                format!(
                    "\"{}\" is no name of this server, which listens for this machine alone: use localhost or its address, or start it with \
                     --public-url and the URL by which clients reach it",
                    shown(&name)
                ),
            ));
        }
        let Some(origin) = one(headers, &ORIGIN)? else { return Ok(()) };
        let name = origin.split_once("://").and_then(|(_, rest)| host::name_of(rest));
        if name.is_some_and(|name| self.is_known(&name)) {
            return Ok(());
        }
        let message = format!("web pages of \"{}\" can't use this server's control plane", shown(origin));
        Err(ApiError::new(StatusCode::FORBIDDEN, message))
    }

    /// Whether a request comes from this machine by all that its head says, and not by a proxy on it.
    pub(crate) fn is_from_here(uri: &Uri, headers: &HeaderMap) -> bool {
        let name = authority(uri, headers).ok().flatten().and_then(|authority| host::name_of(&authority));
        let is_forwarded = headers.contains_key(FORWARDED) || headers.contains_key(FORWARDED_FOR);
        name.is_some_and(|name| host::is_plain(&name)) && !is_forwarded
    }

    /// Where a request goes that has this head.
    ///
    /// Headers come first: `/health` is an endpoint of guests and of the control plane.
    pub(crate) fn route(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> ApiResult<Route> {
        let name = authority(uri, headers)?.and_then(|authority| host::name_of(&authority));
        let given = (one(headers, &ID_HEADER)?, one(headers, &PORT_HEADER)?);
        if name.as_deref().is_some_and(|name| self.is_shared(name)) {
            match given {
                (None, None) => {}
                (Some(id), Some(port)) => return of_headers(id, port),
                (Some(_), None) => return Err(lonely(&ID_HEADER, &PORT_HEADER)),
                (None, Some(_)) => return Err(lonely(&PORT_HEADER, &ID_HEADER)),
            }
        }
        if let Some(label) = self.label(name.as_deref()) {
            if let Some((port, id)) = host::port_and_id(label) {
                return Ok(Route::Sandbox { id: id.to_owned(), port });
            }
            if label.starts_with(|c: char| c.is_ascii_digit()) {
                return Err(ApiError::bad_request(format!(
                    "host \"{label}\" is no sandbox' name: expected {{port}}-{{id}}, the port from 1 to 65535, the id of a-z and 0-9"
                )));
            }
        }
        of_path(method, uri)
    }

    /// The first label of a name below the domain of sandboxes, or below `localhost`.
    fn label<'a>(&self, name: Option<&'a str>) -> Option<&'a str> {
        let name = name?;
        let domain = self.domain.as_deref().and_then(|domain| host::label_below(name, domain));
        // Browsers know these without a resolver.
        domain.or_else(|| host::label_below(name, "localhost"))
    }
}

/// The host that a request names: in its target with HTTP/2, else in its header, of which there is one.
pub(crate) fn authority<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> ApiResult<Option<Cow<'a, str>>> {
    match (uri.authority(), one(headers, &HOST)?) {
        (Some(authority), _) => Ok(Some(Cow::Borrowed(authority.as_str()))),
        (None, host) => Ok(host.map(Cow::Borrowed)),
    }
}

/// The value of a header that is there once at most.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> ApiResult<Option<&'a str>> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(ApiError::bad_request(format!("header {name} is there more than once")));
    }
    match value.to_str() {
        Ok(value) => Ok(Some(value.trim())),
        Err(_) => Err(ApiError::bad_request(format!("header {name} is not plain text"))),
    }
}

fn of_headers(id: &str, port: &str) -> ApiResult<Route> {
    let Some(id) = host::id(id) else {
        return Err(ApiError::bad_request(format!(
            "header {ID_HEADER} is no sandbox' id: expected letters a-z and digits"
        )));
    };
    let Some(port) = host::port(port) else {
        return Err(ApiError::bad_request(format!(
            "header {PORT_HEADER} is no port: expected a number from 1 to 65535"
        )));
    };
    Ok(Route::Sandbox { id: id.to_owned(), port })
}

fn lonely(given: &HeaderName, missing: &HeaderName) -> ApiError {
    ApiError::bad_request(format!("header {given} without {missing}: a request for a sandbox has both"))
}

/// What a request without a sandbox' name means. Paths that only guests have are no mystery to whoever forgot the headers.
fn of_path(method: &Method, uri: &Uri) -> ApiResult<Route> {
    let path = uri.path();
    if path == "/files"
        && has_signature(uri)
        && matches!(*method, Method::GET | Method::HEAD | Method::POST | Method::OPTIONS)
    {
        return Ok(Route::Signed);
    }
    let is_guest = matches!(path, "/files" | "/files/compose" | "/envs" | "/init" | "/execute" | "/contexts")
        || path.starts_with("/process.Process/")
        || path.starts_with("/filesystem.Filesystem/")
        || path.starts_with("/contexts/");
    if is_guest {
        return Err(ApiError::bad_request(format!(
            "{path} is an endpoint of a sandbox, and the request names none: send {ID_HEADER} and {PORT_HEADER} \
             (current SDKs do) with Host `localhost` or an address, or use the host {{port}}-{{id}}.{{domain}}"
        )));
    }
    Ok(Route::Control)
}

/// A name from a head, as far as it is worth showing.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_SHOWN).collect()
}

fn has_signature(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes()).any(|(key, _)| key == "signature")
}

#[cfg(test)]
mod tests;
