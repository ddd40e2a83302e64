//! What the fuzz targets run (decision 0009): each function takes any bytes and panics where a promise does not hold.

use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method, Uri};

use crate::guest::{ID_HEADER, Names, PORT_HEADER, Route};

/// Heads of requests, in lines: host, id, port, target. No other id or port comes of them than sandboxes have, and it stands in them.
pub fn route(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let mut headers = HeaderMap::new();
    for name in [HOST, ID_HEADER, PORT_HEADER] {
        if let Some(value) = lines.next().filter(|line| !line.is_empty()) {
            let Ok(value) = HeaderValue::from_bytes(value) else { return };
            headers.insert(name, value);
        }
    }
    let Ok(uri) = Uri::try_from(lines.next().unwrap_or(b"/")) else { return };
    for names in [
        Names::new(Some("sbx.test:8443"), "https://api.own.test", false),
        Names::new(None, "http://127.0.0.1:3000", true),
    ] {
        let _ = names.admit(&uri, &headers);
        let Ok(Route::Sandbox { id, port }) = names.route(&Method::GET, &uri, &headers) else { continue };
        assert!(port != 0 && !id.is_empty() && id.len() <= 63);
        assert!(id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
        let given = String::from_utf8_lossy(data).to_ascii_lowercase();
        assert!(given.contains(&id) && given.contains(&port.to_string()));
    }
}

/// Names and tags of templates.
pub fn template_name(data: &[u8]) {
    crate::control::template_fuzzing::name(data);
}

/// What a step of a build copies, made of an upload.
pub fn template_copy(data: &[u8]) {
    crate::control::template_fuzzing::copy(data);
}

#[cfg(test)]
mod tests {
    sandbar_replay::replay_tests!(route, template_copy, template_name);
}
