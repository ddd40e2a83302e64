use std::fmt::Write;
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RANGE};
use http::{Method, Response, StatusCode};
use sandbar_core::{
    ByteStream, Error, ErrorKind, FileEntry, FileRead, Files, GuestPath, ListOptions, ReadOptions, Result,
    Retry, UserName, WriteOptions,
};
use sandbar_wire::envd::{
    ARCHIVE_ERROR_TRAILER, Code, Empty, EntryResponse, HttpError, ListDirRequest, ListDirResponse,
    MoveRequest, PathRequest,
};

use super::body::{ResponseBody, streamed, whole};
use super::entries::entry;
use super::fault;
use super::link::Link;
use super::patience;
use super::pool::Failure;
use super::processes::Shared;
use super::rpc::{CALL, request};
use crate::config::BACKEND;
use crate::error::fail;

/// Where the agent serves content of files.
const FILES: &str = "/files";
const READ: &str = "read";
const WRITE: &str = "write";
const STAT: &str = "stat";
const LIST: &str = "list";
const MAKE_DIR: &str = "make folder";
const RENAME: &str = "rename";
const REMOVE: &str = "remove";
/// How long an upload may take as a whole: 1 TiB at 100 MB/s is three hours.
pub(super) const UPLOAD: Duration = Duration::from_secs(24 * 3600);

#[async_trait]
impl Files for Shared {
    async fn read_opts(&self, path: &GuestPath, options: ReadOptions) -> Result<FileRead> {
        let ReadOptions { range, user } = options;
        let range = match range {
            Some(range) if range.length == Some(0) => return self.nothing(path).await,
            Some(range) => Some(match range.length {
                Some(length) => format!("bytes={}-{}", range.start, range.start.saturating_add(length - 1)),
                None => format!("bytes={}-", range.start),
            }),
            None => None,
        };
        let mut headers = Vec::new();
        if let Some(range) = &range {
            headers.push((RANGE.as_str(), range.as_str()));
        }
        let request =
            request(Method::GET, &place(FILES, path, user.as_ref(), READ)?, None, &headers, whole(""))?;
        let response = self.0.send(request, CALL, READ).await?;
        match response.status() {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => {
                Ok(read(std::sync::Arc::clone(&self.0), response))
            }
            // Nothing begins there.
            StatusCode::RANGE_NOT_SATISFIABLE => {
                self.0.collect(response.into_body(), READ).await?;
                Ok(FileRead { body: stream::empty().boxed(), length: Some(0) })
            }
            _ => Err(self.http_error(READ, path, response).await),
        }
    }

    async fn write_opts(
        &self,
        path: &GuestPath,
        body: ByteStream,
        options: WriteOptions,
    ) -> Result<FileEntry> {
        let WriteOptions { user } = options;
        let (body, broken, progress) = streamed(body);
        let headers = [(CONTENT_TYPE.as_str(), "application/octet-stream")];
        let request =
            request(Method::POST, &place(FILES, path, user.as_ref(), WRITE)?, None, &headers, body)?;
        let sent = tokio::select! {
            sent = self.0.send(request, UPLOAD, WRITE) => sent,
            error = patience::ends(&self.0, Some(&progress), WRITE) => Err(error),
        };
        // The caller's own error is the answer, whatever became of the connection.
        if let Some(error) = broken.take() {
            return Err(error);
        }
        let response = sent?;
        if response.status() != StatusCode::OK {
            return Err(self.http_error(WRITE, path, response).await);
        }
        self.0.collect(response.into_body(), WRITE).await?;
        match Files::stat(self, path).await? {
            Some(entry) => Ok(entry),
            None => Err(fail(ErrorKind::Conflict, WRITE, format!("`{path}` was written and is gone again"))),
        }
    }

    async fn stat(&self, path: &GuestPath) -> Result<Option<FileEntry>> {
        let answer =
            self.0.call::<EntryResponse>("/filesystem.Filesystem/Stat", &named(path), None, STAT).await?;
        match answer {
            Ok(found) => entry(found.entry, STAT).map(Some),
            // Below a file there is positively nothing, either.
            Err(error) if matches!(error.code, Code::NotFound | Code::InvalidArgument) => Ok(None),
            Err(error) => Err(on(path, fault::rpc(STAT, &error))),
        }
    }

    async fn list_opts(&self, path: &GuestPath, options: ListOptions) -> Result<Vec<FileEntry>> {
        let ListOptions { depth } = options;
        if depth == 0 {
            return Err(
                Error::invalid(LIST, "depth 0 is not valid: expected at least 1").with_backend(BACKEND)
            );
        }
        let PathRequest { path: text, path_b64 } = named(path);
        let message = ListDirRequest { path: text, path_b64, depth };
        let answer =
            self.0.call::<ListDirResponse>("/filesystem.Filesystem/ListDir", &message, None, LIST).await?;
        let list = answer.map_err(|error| on(path, fault::rpc(LIST, &error)))?;
        list.entries.into_iter().map(|info| entry(info, LIST)).collect()
    }

    async fn make_dir(&self, path: &GuestPath) -> Result<bool> {
        let answer = self
            .0
            .call::<EntryResponse>("/filesystem.Filesystem/MakeDir", &named(path), None, MAKE_DIR)
            .await?;
        match answer {
            Ok(_) => Ok(true),
            Err(error) if error.code == Code::AlreadyExists => Ok(false),
            Err(error) => Err(on(path, fault::rpc(MAKE_DIR, &error))),
        }
    }

    async fn rename(&self, from: &GuestPath, to: &GuestPath) -> Result<FileEntry> {
        let PathRequest { path: source, path_b64: source_b64 } = named(from);
        let PathRequest { path: destination, path_b64: destination_b64 } = named(to);
        let message = MoveRequest { source, destination, source_b64, destination_b64 };
        let answer =
            self.0.call::<EntryResponse>("/filesystem.Filesystem/Move", &message, None, RENAME).await?;
        match answer {
            Ok(moved) => entry(moved.entry, RENAME),
            Err(error) => Err(on(from, fault::rpc(RENAME, &error))),
        }
    }

    async fn remove(&self, path: &GuestPath) -> Result<bool> {
        // The agent calls it a success when there was nothing, so look first.
        if Files::stat(self, path).await?.is_none() {
            return Ok(false);
        }
        match self.0.call::<Empty>("/filesystem.Filesystem/Remove", &named(path), None, REMOVE).await? {
            Ok(Empty {}) => Ok(true),
            Err(error) => Err(on(path, fault::rpc(REMOVE, &error))),
        }
    }
}

impl Shared {
    /// Reads no bytes at all of a file that has to be there.
    async fn nothing(&self, path: &GuestPath) -> Result<FileRead> {
        match Files::stat(self, path).await? {
            Some(entry) if entry.kind != sandbar_core::EntryKind::Directory => {
                Ok(FileRead { body: stream::empty().boxed(), length: Some(0) })
            }
            Some(_) => Err(on(path, fail(ErrorKind::InvalidInput, READ, format!("`{path}` is a folder")))),
            None => Err(on(path, Error::not_found(READ, format!("`{path}`")).with_backend(BACKEND))),
        }
    }

    /// The error in an answer of the plain endpoints.
    pub(super) async fn http_error(
        &self,
        operation: &'static str,
        path: &GuestPath,
        response: Response<ResponseBody>,
    ) -> Error {
        let status = response.status();
        let body = match self.0.collect(response.into_body(), operation).await {
            Ok(body) => body,
            Err(error) => return error,
        };
        let message = match serde_json::from_slice::<HttpError>(&body) {
            Ok(error) => error.message,
            Err(_) => format!("status {status}"),
        };
        on(path, refusal(status, &message, operation))
    }
}

/// What the plain endpoints refuse, by its status.
fn refusal(status: StatusCode, message: &str, operation: &'static str) -> Error {
    let kind = match status {
        // Of a user that does not exist the agent says that it is not authenticated; there are no tokens here.
        StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED => ErrorKind::InvalidInput,
        StatusCode::FORBIDDEN => ErrorKind::PermissionDenied,
        // An agent that was started by an executable of another version.
        StatusCode::NOT_FOUND if message.starts_with("no such endpoint") => ErrorKind::Unsupported,
        StatusCode::NOT_FOUND => ErrorKind::NotFound,
        StatusCode::CONFLICT => ErrorKind::Conflict,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::INSUFFICIENT_STORAGE | StatusCode::PAYLOAD_TOO_LARGE => {
            ErrorKind::LimitExceeded
        }
        _ => ErrorKind::Unexpected,
    };
    fail(kind, operation, fault::readable(message))
}

/// Why a body that came to its end is not whole all the same.
fn ended_early(body: &ResponseBody, operation: &'static str) -> Option<Error> {
    let told = body.trailers()?.get(ARCHIVE_ERROR_TRAILER)?;
    Some(match serde_json::from_slice::<HttpError>(told.as_bytes()) {
        Ok(error) => {
            let status = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            refusal(status, &error.message, operation)
        }
        Err(cause) => fault::nonsense(operation, &cause).with_retry(Retry::Safe),
    })
}

/// A connection that broke while something was read: that changes nothing inside.
pub(super) fn only_read(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unavailable => error
            .with_retry(Retry::Safe)
            .with_hint("it ended early, and what came is not whole; nothing inside was changed: try again"),
        _ => error,
    }
}

/// The body of a file, and its length where the agent told one.
fn read(link: std::sync::Arc<Link>, response: Response<ResponseBody>) -> FileRead {
    let length = response.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    FileRead { body: content(link, response, READ), length }
}

/// What an answer carries, as it comes. It ends with an error where the agent broke it off.
pub(super) fn content(
    link: std::sync::Arc<Link>,
    response: Response<ResponseBody>,
    operation: &'static str,
) -> ByteStream {
    let state = Some((link, response.into_body()));
    let body = stream::unfold(state, move |state| async move {
        let (link, mut body) = state?;
        let chunk = tokio::select! {
            biased;
            chunk = body.chunk() => chunk,
            error = patience::ends(&link, None, operation) => return Some((Err(only_read(error)), None)),
        };
        match chunk {
            Some(Ok(bytes)) => Some((Ok(bytes), Some((link, body)))),
            Some(Err(cause)) => {
                let error = link.lost(operation, Failure::Broken(cause)).await;
                Some((Err(only_read(error)), None))
            }
            None => ended_early(&body, operation).map(|error| (Err(error), None)),
        }
    });
    body.boxed()
}

/// An endpoint for content. Its parameters are text.
pub(super) fn place(
    endpoint: &str,
    path: &GuestPath,
    user: Option<&UserName>,
    operation: &'static str,
) -> Result<String> {
    if path.to_str().is_none() {
        return Err(Error::unsupported(
            operation,
            "a file name that is not UTF-8",
            "the guest's protocol names files with content by text",
        )
        .with_backend(BACKEND)
        .with_hint("rename it first, or use a command inside"));
    }
    let mut place = format!("{endpoint}?path={}", encoded(path.as_bytes()));
    if let Some(user) = user {
        place.push_str("&username=");
        place.push_str(&encoded(user.as_str().as_bytes()));
    }
    Ok(place)
}

fn encoded(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len()), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.' | b'~') {
            text.push(char::from(*byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

/// A path, and its exact bytes where it is no text.
pub(super) fn named(path: &GuestPath) -> PathRequest {
    PathRequest {
        path: String::from_utf8_lossy(path.as_bytes()).into_owned(),
        path_b64: path.to_str().is_none().then(|| bytes::Bytes::copy_from_slice(path.as_bytes())),
    }
}

/// Names what an error is about.
pub(super) fn on(path: &GuestPath, error: Error) -> Error {
    error.with_resource(format!("`{path}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_survives_the_query() {
        let path = GuestPath::new("/a b/ü+%&#\n").unwrap();
        let user = UserName::new("root").unwrap();
        let place = place(FILES, &path, Some(&user), "read").unwrap();
        assert_eq!(place, "/files?path=/a%20b/%C3%BC%2B%25%26%23%0A&username=root");
        let odd = GuestPath::new(b"/\xff").unwrap();
        assert_eq!(super::place(FILES, &odd, None, "read").unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(named(&odd).path_b64.unwrap(), &b"/\xff"[..]);
    }
}
