//! A site from a folder: a git repository for plain HTTP, a package index, a registry.

use std::fs;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Response, StatusCode};

use crate::http::{Body, text};

/// What a folder answers with.
const INDEXES: [&str; 2] = ["index.html", "index.json"];

pub(crate) fn respond(folder: &Path, method: &Method, path: &str) -> Response<Body> {
    if method != Method::GET && method != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only files are here\n");
    }
    let Some(file) = find(folder, path) else { return text(StatusCode::NOT_FOUND, "no such file\n") };
    let bytes = match fs::read(&file) {
        Ok(bytes) => bytes,
        Err(e) => {
            return text(StatusCode::INTERNAL_SERVER_ERROR, &format!("read `{}`: {e}\n", file.display()));
        }
    };
    let length = HeaderValue::from(bytes.len());
    let body = if method == Method::HEAD { Bytes::new() } else { Bytes::from(bytes) };
    let mut response = Response::new(Full::new(body).boxed());
    response.headers_mut().insert(CONTENT_LENGTH, length);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind(&file)));
    response
}

fn find(folder: &Path, path: &str) -> Option<PathBuf> {
    let path = String::from_utf8(decode(path)).ok()?;
    let path = Path::new(path.trim_start_matches('/'));
    if !path.components().all(|part| matches!(part, Component::Normal(_))) {
        return None;
    }
    let found = folder.join(path);
    if found.is_file() {
        return Some(found);
    }
    INDEXES.iter().map(|index| found.join(index)).find(|index| index.is_file())
}

fn kind(file: &Path) -> &'static str {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("json") => "application/json",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// Undoes `%xx`.
pub(crate) fn decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        let hex = after.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        if let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.push(*first);
        }
    }
    bytes
}
