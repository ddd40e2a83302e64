use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use sandbar_core::{EntryKind, Error, ErrorKind, GuestPath, ReadOptions, Sandbox, UserName, WriteOptions};
use sandbar_wire::envd::{FileEntry, HttpError};

use super::call::{failed, http_error, json, path, user};

/// Largest upload in parts that is taken, in bytes: it is held until its parts are told apart. Others are passed on as they come.
const MAX_FORM: usize = 64 << 20;

/// What a query says of a file.
struct Query {
    path: Option<String>,
    user: Option<UserName>,
}

fn query(parts: &Parts) -> Result<Query, HttpError> {
    let mut query =
        Query { path: None, user: user(&parts.headers).map_err(|text| HttpError::new(401, text))? };
    for (key, value) in form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()) {
        match &*key {
            "path" => query.path = Some(value.into_owned()),
            "username" if !value.is_empty() => {
                let name = UserName::new(&*value);
                query.user =
                    Some(name.map_err(|_| HttpError::new(401, format!("invalid username: '{value}'")))?);
            }
            _ => {}
        }
    }
    Ok(query)
}

/// Serves `GET /files`.
pub(super) async fn download(sandbox: &dyn Sandbox, parts: &Parts) -> Response {
    read(sandbox, parts).await.unwrap_or_else(|error| http_error(&error))
}

async fn read(sandbox: &dyn Sandbox, parts: &Parts) -> Result<Response, HttpError> {
    let query = query(parts)?;
    let path = resolve(query.path.as_deref().unwrap_or_default(), query.user.as_ref())?;
    let found = sandbox.files().stat(&path).await.map_err(|e| of(&e))?;
    match found {
        None => return Err(HttpError::new(404, format!("path '{}' does not exist", path.display()))),
        Some(entry) if entry.kind == EntryKind::Directory => {
            return Err(HttpError::new(400, format!("path '{}' is a directory", path.display())));
        }
        Some(_) => {}
    }
    let options = ReadOptions { user: query.user, ..ReadOptions::default() };
    let file = sandbox.files().read_opts(&path, options).await.map_err(|e| of(&e))?;
    let body = if parts.method == Method::HEAD {
        Body::empty()
    } else {
        Body::from_stream(file.body.map_err(std::io::Error::other))
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    if let Some(length) = file.length {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(response)
}

/// Serves `POST /files`.
pub(super) async fn upload(sandbox: &dyn Sandbox, parts: &Parts, body: Body) -> Response {
    match write(sandbox, parts, body).await {
        Ok(written) => json(&written),
        Err(error) => http_error(&error),
    }
}

async fn write(sandbox: &dyn Sandbox, parts: &Parts, body: Body) -> Result<Vec<FileEntry>, HttpError> {
    let query = query(parts)?;
    if parts.headers.contains_key(header::CONTENT_ENCODING) {
        return Err(HttpError::new(
            415,
            "this backend takes bodies as they are: send it without Content-Encoding",
        ));
    }
    let kind =
        parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.starts_with("application/octet-stream") {
        let Some(given) = &query.path else {
            return Err(HttpError::new(400, "an upload of plain bytes needs the query parameter path"));
        };
        let body = body
            .into_data_stream()
            .map_err(|e| Error::new(ErrorKind::Protocol, "write", "the body broke off").with_source(e));
        return Ok(vec![store(sandbox, given, query.user, body.boxed()).await?]);
    }
    let boundary = kind
        .strip_prefix("multipart/form-data")
        .and_then(|rest| rest.split(';').find_map(|part| part.trim().strip_prefix("boundary=")))
        .ok_or_else(|| HttpError::new(400, "expected multipart/form-data or application/octet-stream"))?;
    let whole = axum::body::to_bytes(body, MAX_FORM).await.map_err(|_| {
        HttpError::new(
            413,
            format!("the form broke off or is above {MAX_FORM} bytes: send application/octet-stream"),
        )
    })?;
    let mut written = Vec::new();
    for (name, bytes) in form(&whole, boundary.trim_matches('"'))? {
        let given = query.path.as_ref().unwrap_or(&name);
        let body = futures::stream::once(async move { Ok(bytes) }).boxed();
        written.push(store(sandbox, given, query.user.clone(), body).await?);
    }
    Ok(written)
}

async fn store(
    sandbox: &dyn Sandbox,
    given: &str,
    user: Option<UserName>,
    body: sandbar_core::ByteStream,
) -> Result<FileEntry, HttpError> {
    let path = resolve(given, user.as_ref())?;
    let entry = sandbox.files().write_opts(&path, body, WriteOptions { user }).await.map_err(|e| of(&e))?;
    let path = entry.path.display().into_owned();
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(FileEntry { path, name, kind: "file".to_owned(), ..FileEntry::default() })
}

fn resolve(given: &str, user: Option<&UserName>) -> Result<GuestPath, HttpError> {
    path(given, user).map_err(|error| HttpError::new(400, error.message))
}

fn of(error: &Error) -> HttpError {
    let status = match error.kind() {
        ErrorKind::LimitExceeded => StatusCode::INSUFFICIENT_STORAGE.as_u16(),
        _ => failed(error).code.http_status(),
    };
    HttpError::new(status, error.message())
}

/// The files of a form: name with its folders, and bytes.
fn form(whole: &Bytes, boundary: &str) -> Result<Vec<(String, Bytes)>, HttpError> {
    let malformed = || HttpError::new(400, "the form is not multipart/form-data as its boundary says");
    let line = format!("--{boundary}");
    let mut files = Vec::new();
    let mut at = find(whole, line.as_bytes(), 0).ok_or_else(malformed)? + line.len();
    while !whole[at..].starts_with(b"--") {
        let head_end = find(whole, b"\r\n\r\n", at).ok_or_else(malformed)?;
        let end_line = format!("\r\n{line}");
        let end = find(whole, end_line.as_bytes(), head_end + 2).ok_or_else(malformed)?;
        let head = std::str::from_utf8(&whole[at..head_end]).map_err(|_| malformed())?;
        let start = (head_end + 4).min(end);
        if let (Some("file"), Some(name)) = (parameter(head, "name"), parameter(head, "filename")) {
            files.push((name.to_owned(), whole.slice(start..end)));
        }
        at = end + end_line.len();
    }
    Ok(files)
}

/// A parameter of a part's `Content-Disposition`.
fn parameter<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("content-disposition:"))?;
    line.split(';').find_map(|part| {
        let value = part.trim().strip_prefix(name)?.strip_prefix('=')?;
        Some(value.trim_matches('"'))
    })
}

fn find(whole: &[u8], what: &[u8], from: usize) -> Option<usize> {
    let rest = whole.get(from..)?;
    rest.windows(what.len()).position(|window| window == what).map(|found| from + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_told_apart() {
        let text = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x/a.txt\"\r\nContent-Type: text/plain\r\n\r\none\r\n\
                    --b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\ntwo\r\n--b\r\n\
                    Content-Disposition: form-data; name=\"file\"; filename=\"empty\"\r\n\r\n\r\n--b--\r\n";
        let files = form(&Bytes::from(text), "b").unwrap();
        assert_eq!(files, [("x/a.txt".to_owned(), Bytes::from("one")), ("empty".to_owned(), Bytes::new())]);
        for bad in ["", "--b", "--b\r\n", "--b\r\nx\r\n\r\n", "--c\r\n\r\n\r\n--c--"] {
            assert!(form(&Bytes::from(bad), "b").is_err(), "{bad:?}");
        }
    }
}
