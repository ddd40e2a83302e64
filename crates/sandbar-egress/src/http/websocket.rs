use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONNECTION, CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Version};

/// What a server puts after a key before it hashes it (RFC 6455, section 1.3).
const ACCEPTS: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Bytes of a key.
const KEY: usize = 16;

/// Whether a request opens a `websocket` as RFC 6455, section 4.1 has it. Else, what is wrong.
pub(super) fn check(head: &Parts) -> Result<(), &'static str> {
    let headers = &head.headers;
    if head.method != Method::GET || head.version != Version::HTTP_11 {
        return Err("a websocket without `GET` of version 1.1");
    }
    if !has_token(headers, &CONNECTION, "upgrade") {
        return Err("an upgrade without `connection: upgrade`");
    }
    let has_body = headers.contains_key(http::header::TRANSFER_ENCODING)
        || headers.get(CONTENT_LENGTH).is_some_and(|v| v.as_bytes() != b"0");
    if has_body {
        return Err("a websocket with a body");
    }
    if only(headers, &SEC_WEBSOCKET_VERSION) != Some(b"13") {
        return Err("a websocket of another version than 13");
    }
    let key = only(headers, &SEC_WEBSOCKET_KEY).and_then(|key| STANDARD.decode(key).ok());
    if key.is_none_or(|key| key.len() != KEY) {
        return Err("a websocket without a key");
    }
    Ok(())
}

/// What the server must answer to the key of a request that was checked. With it, it says that it understood the request as an upgrade.
pub(super) fn answer_to(headers: &HeaderMap) -> Option<String> {
    let mut text = only(headers, &SEC_WEBSOCKET_KEY)?.to_vec();
    text.extend_from_slice(ACCEPTS.as_bytes());
    Some(STANDARD.encode(ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &text)))
}

/// Whether a response with status 101 makes the connection a `websocket`.
pub(super) fn is_accepted(headers: &HeaderMap, expected: &str) -> bool {
    only(headers, &UPGRADE).is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
        && has_token(headers, &CONNECTION, "upgrade")
        && only(headers, &SEC_WEBSOCKET_ACCEPT) == Some(expected.as_bytes())
}

/// The value of a header that is there exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none()).map(http::HeaderValue::as_bytes)
}

/// Whether a list of tokens holds this one.
pub(super) fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case(token))
}
