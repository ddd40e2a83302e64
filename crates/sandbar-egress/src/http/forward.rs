use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Uri, Version};
use sandbar_core::{HeaderInjection, Hostname};

use super::request::Wanted;
use super::websocket::has_token;

/// What is about one connection, beside what `Connection` names (RFC 9110, section 7.6.1), and settings for a version that is not spoken.
const OF_ONE_CONNECTION: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// A header whose value is not known, so that the request can't be made.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unknown(pub(super) String);

/// The head that goes out for one that was checked: for this host, with a path as target, with nothing that was about the connection to the sandbox, and
/// with the injected headers in place of what the sandbox sent under their names.
pub(super) fn request(
    mut head: Parts,
    wanted: Wanted,
    name: &Hostname,
    inject: &[HeaderInjection],
) -> Result<Parts, Unknown> {
    let has_port =
        head.headers.get(HOST).and_then(|host| host.to_str().ok()?.rsplit_once(':')).map(|(_, port)| port);
    let host = match has_port {
        Some(port) => format!("{name}:{port}"),
        None => name.to_string(),
    };
    let takes_trailers = has_token(&head.headers, &TE, "trailers");
    strip(&mut head.headers);
    head.headers.remove(EXPECT);
    head.headers.insert(HOST, value(&host));
    if takes_trailers {
        head.headers.insert(TE, HeaderValue::from_static("trailers"));
        head.headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    if wanted == Wanted::WebSocket {
        head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        head.headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
    for header in inject {
        let unknown = || Unknown(header.header().to_owned());
        let name = HeaderName::from_bytes(header.header().as_bytes()).map_err(|_| unknown())?;
        let mut secret =
            header.reveal().and_then(|text| HeaderValue::from_str(text).ok()).ok_or_else(unknown)?;
        secret.set_sensitive(true);
        head.headers.insert(name, secret);
    }
    let path = head.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    head.uri = Uri::from(path);
    head.version = Version::HTTP_11;
    Ok(head)
}

/// The head that comes back for one from outside: with nothing that was about the connection there. `upgraded` says that it makes the connection a
/// `websocket`.
pub(super) fn response(headers: &mut HeaderMap, wanted: Wanted) {
    // One of both was wrong, and the body was read by the encoding.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    strip(headers);
    if wanted == Wanted::WebSocket {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
}

fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|word| word.trim().parse().ok())
        // How long the body is is about the message, whoever says otherwise.
        .filter(|name| *name != CONTENT_LENGTH)
        .collect();
    for name in named.iter().chain(&OF_ONE_CONNECTION) {
        headers.remove(name);
    }
}

/// A host name and a port are always a value.
fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}
