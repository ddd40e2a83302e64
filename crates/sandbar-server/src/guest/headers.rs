//! What passes of a head, and what is of one connection alone.

use std::net::IpAddr;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, Version, request, response};
use sandbar_wire::envd::ACCESS_TOKEN_HEADER;

use super::admit::{INTERPRETER_PORT, TRAFFIC_HEADER};
use super::exchange::Lane;
use super::resident::Resident;
use crate::listen::Peer;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// What the other protocol is that a request asks for.
pub(super) fn upgrade(parts: &request::Parts) -> Option<HeaderValue> {
    let asks = parts.version == Version::HTTP_11 && lists(&parts.headers, "upgrade");
    parts.headers.get(header::UPGRADE).filter(|_| asks).cloned()
}

fn lists(headers: &HeaderMap, word: &str) -> bool {
    words(headers).any(|given| given.eq_ignore_ascii_case(word))
}

fn words(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|word| !word.is_empty())
}

/// Makes a client's head one for the guest or a port.
pub(super) fn inward(
    parts: &mut request::Parts,
    resident: &Resident,
    lane: Lane,
    upgrade: Option<&HeaderValue>,
) {
    let peer = parts.extensions.get::<Peer>().copied();
    let host = parts
        .uri
        .authority()
        .and_then(|authority| HeaderValue::from_str(authority.as_str()).ok())
        .or_else(|| parts.headers.get(header::HOST).cloned());
    let wants_trailers = parts.headers.get(header::TE).is_some_and(|te| {
        te.to_str().is_ok_and(|te| te.split(',').any(|word| word.trim().eq_ignore_ascii_case("trailers")))
    });
    // A body of two lengths would be cut at another place by each who reads it.
    if parts.headers.contains_key(header::TRANSFER_ENCODING) {
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    strip(&mut parts.headers);
    let headers = &mut parts.headers;
    headers.remove(header::EXPECT);
    headers.remove(header::PROXY_AUTHORIZATION);
    headers.remove(TRAFFIC_HEADER);
    if wants_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    if let Some(protocol) = upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, protocol.clone());
    }
    match lane {
        // Who got here has shown it; what runs inside does not learn it.
        Lane::Agent | Lane::Port(INTERPRETER_PORT) => {
            headers.remove(ACCESS_TOKEN_HEADER);
        }
        Lane::Port(_) => {}
    }
    if let Lane::Port(port) = lane {
        for name in [FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PROTO, header::FORWARDED] {
            headers.remove(name);
        }
        if let Some(peer) = peer {
            if let Ok(address) = HeaderValue::from_str(&canonical(peer.address.ip()).to_string()) {
                headers.insert(FORWARDED_FOR, address);
            }
            let scheme = if peer.is_tls { "https" } else { "http" };
            headers.insert(FORWARDED_PROTO, HeaderValue::from_static(scheme));
        }
        if let Some(host) = &host {
            headers.insert(FORWARDED_HOST, host.clone());
        }
        let mask = resident.marks.mask_host.as_deref().map(|mask| mask.replace("${PORT}", &port.to_string()));
        let masked = mask.and_then(|mask| HeaderValue::from_str(&mask).ok());
        set_host(headers, masked.or(host));
    } else {
        set_host(headers, host);
    }
    parts.version = Version::HTTP_11;
    // Nothing of this server's own goes along.
    parts.extensions = http::Extensions::new();
}

fn set_host(headers: &mut HeaderMap, host: Option<HeaderValue>) {
    let host = host.unwrap_or_else(|| HeaderValue::from_static("localhost"));
    headers.insert(header::HOST, host);
}

/// An address of version 4 in the clothes of version 6 is one of version 4.
fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Makes a head from inside one for the client.
pub(super) fn outward(parts: &mut response::Parts) {
    let upgrade = (parts.status == StatusCode::SWITCHING_PROTOCOLS)
        .then(|| parts.headers.get(header::UPGRADE).cloned())
        .flatten();
    strip(&mut parts.headers);
    if let Some(protocol) = upgrade {
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(header::UPGRADE, protocol);
    }
    parts.version = Version::HTTP_11;
    parts.extensions = http::Extensions::new();
}

/// Removes what is of one connection.
fn strip(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> =
        words(headers).filter_map(|word| HeaderName::from_bytes(word.as_bytes()).ok()).collect();
    // What a list may not take away is what the rest of the head depends on.
    let kept = [header::HOST, header::CONTENT_LENGTH, header::CONTENT_TYPE, header::AUTHORIZATION];
    for name in listed.iter().filter(|name| !kept.contains(name)) {
        headers.remove(name);
    }
    for name in [
        header::CONNECTION,
        header::TE,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        KEEP_ALIVE,
        PROXY_CONNECTION,
    ] {
        headers.remove(name);
    }
}
