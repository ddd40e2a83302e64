use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use sandbar_wire::envd::HttpError;

use super::access::Query;
use super::encoding::{GUNZIP_STEP, Gunzip, choose};
use super::multipart::{Item, MAX_HEADER_BYTES, Multipart};
use super::range::{Part, Version, condition, is_partial, part};
use crate::http::{basic_user, token_allows};

/// Deflate makes at most that many bytes of one (258 of two bits).
const DEFLATE_RATIO: usize = 1032;

/// Parts as far as they came, and how it ended.
#[derive(Debug, PartialEq)]
struct Outcome {
    parts: Vec<(String, Option<String>, Vec<u8>)>,
    ended: usize,
    end: Result<(), HttpError>,
}

pub(crate) fn multipart(data: &[u8]) {
    let (head, body) = data.split_at(data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len()));
    let Ok(content_type) = std::str::from_utf8(head) else { return };
    let body = body.get(1..).unwrap_or_default();
    let Some(whole) = read(content_type, body, body.len()) else { return };
    // Long headers in single bytes are looked through again and again, which only costs time here.
    for step in [1 + body.len() / 500, 7 + body.len() / 100, MAX_HEADER_BYTES] {
        assert_eq!(read(content_type, body, step).as_ref(), Some(&whole), "in pieces of {step}");
    }
    let content: usize = whole.parts.iter().map(|(_, _, content)| content.len()).sum();
    assert!(content <= body.len() && whole.ended <= whole.parts.len());
    assert!(whole.end.is_err() || whole.ended == whole.parts.len());
}

/// `None` where the content type names no boundary.
fn read(content_type: &str, body: &[u8], step: usize) -> Option<Outcome> {
    let mut multipart = Multipart::new(content_type).ok()?;
    let (mut parts, mut ended) = (Vec::new(), 0);
    let mut end = Ok(());
    'pieces: for piece in body.chunks(step.max(1)) {
        multipart.push(piece);
        loop {
            match multipart.next_item() {
                Ok(Some(Item::Part { name, filename })) => parts.push((name, filename, Vec::new())),
                Ok(Some(Item::Data(data))) => {
                    let (_, _, content) = parts.last_mut().expect("content comes after its part");
                    content.extend_from_slice(&data);
                }
                Ok(Some(Item::End)) => ended += 1,
                Ok(None) => break,
                Err(error) => {
                    end = Err(error);
                    break 'pieces;
                }
            }
        }
        assert!(multipart.kept() <= 2 * MAX_HEADER_BYTES, "{} bytes are kept", multipart.kept());
    }
    let end = end.and_then(|()| multipart.finish());
    Some(Outcome { parts, ended, end })
}

pub(crate) fn requests(data: &[u8]) {
    let mut all = HeaderMap::new();
    let names: [HeaderName; 9] = [
        header::RANGE,
        header::IF_RANGE,
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_MODIFIED_SINCE,
        header::IF_UNMODIFIED_SINCE,
        header::ACCEPT_ENCODING,
        header::AUTHORIZATION,
        HeaderName::from_static("x-access-token"),
    ];
    for (line, name) in data.split(|byte| *byte == b'\n').zip(&names) {
        if let Some(value) = HeaderValue::from_bytes(line).ok().filter(|value| !value.is_empty()) {
            all.append(name, value);
        }
    }
    let size = data.len() as u64 % 97;
    let version = Version::new(i64::from(data.first().copied().unwrap_or(0)), 5, size);
    match part(&all, &version, size) {
        Part::Bytes(first, count) => {
            assert!(count > 0 && first.checked_add(count).is_some_and(|end| end <= size));
            assert!(is_partial(&all));
        }
        Part::Unsatisfiable => assert!(is_partial(&all)),
        Part::Whole => {}
    }
    assert!(condition(&all, &version).is_none() || is_partial(&all));
    let _ = choose(&all);
    if let Ok(Some(user)) = basic_user(&all) {
        assert!(!user.is_empty() && !user.contains(':'));
    }
    assert!(!matches!(token_allows(&all, "a token that nobody guesses"), Some(Ok(()))));
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(query) = Query::parse(Some(text)) {
        assert!(query.get("path").is_none_or(|path| path.len() <= text.len()));
    }
    // What is written in the query's own code comes back.
    let coded = data.iter().fold(String::new(), |coded, byte| coded + &format!("%{byte:02X}"));
    let query = Query::parse(Some(&format!("a=b&path={coded}"))).expect("percent-encoded UTF-8 is a query");
    assert_eq!(query.get("path"), Some(text));
}

/// The same comes out however the bytes arrive, and what is held at a time is bounded.
pub(crate) fn gunzip(data: &[u8]) {
    let whole = gunzip_in(data, GUNZIP_STEP);
    let pieces = gunzip_in(data, 1 + data.len() / 3);
    match (whole, pieces) {
        (Ok(whole), Ok(pieces)) => assert!(whole == pieces, "{} and {} bytes", whole.len(), pieces.len()),
        (whole, pieces) => assert_eq!(whole.is_ok(), pieces.is_ok()),
    }
}

fn gunzip_in(data: &[u8], step: usize) -> std::io::Result<Vec<u8>> {
    let mut gunzip = Gunzip::new();
    let mut all = Vec::new();
    for piece in data.chunks(step) {
        gunzip.piece(piece, |out| {
            assert!(out.len() <= (GUNZIP_STEP + DEFLATE_RATIO) * DEFLATE_RATIO);
            all.extend_from_slice(out);
            Ok(())
        })?;
    }
    all.extend(gunzip.finish()?);
    Ok(all)
}
