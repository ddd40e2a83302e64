use std::fmt::Write;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use http::header::{CONTENT_LENGTH, RANGE};
use http::{Method, Response, StatusCode};
use sandbar_core::{
    ByteStream, Error, ErrorKind, FileEntry, FileRead, Files, GuestPath, ListOptions, ReadOptions, Result,
    Retry, UserName, WriteOptions,
};
use sandbar_wire::envd::{
    ARCHIVE_ERROR_TRAILER, Code, Empty, EntryResponse, HttpError, ListDirRequest, ListDirResponse,
    MoveRequest, PathRequest, RpcError,
};

use crate::body::{ResponseBody, whole};
use crate::client::{Dialect, GuestClient};
use crate::entries::entry;
use crate::fault;
use crate::operation::Operation;
use crate::patience;
use crate::rpc::{CALL, request};
use crate::transport::Failure;
use crate::upload::Form;

/// Where the agent serves content of files.
pub(crate) const FILES: &str = "/files";
const READ: &str = "read";
const WRITE: &str = "write";
const STAT: &str = "stat";
const LIST: &str = "list";
const MAKE_DIR: &str = "make folder";
const RENAME: &str = "rename";
const REMOVE: &str = "remove";
#[async_trait]
impl Files for GuestClient {
    async fn read_opts(&self, path: &GuestPath, options: ReadOptions) -> Result<FileRead> {
        let operation = self.operation(READ);
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
        let request = request(
            Method::GET,
            &place(FILES, path, user.as_ref(), operation)?,
            None,
            &headers,
            whole(""),
            operation,
        )?;
        let response = self.send(request, CALL, operation).await?;
        match response.status() {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => Ok(read(self.clone(), response)),
            // Nothing begins there.
            StatusCode::RANGE_NOT_SATISFIABLE => {
                self.collect(response.into_body(), operation).await?;
                Ok(FileRead { body: stream::empty().boxed(), length: Some(0) })
            }
            _ => Err(self.http_error(operation, path, response).await),
        }
    }

    async fn write_opts(
        &self,
        path: &GuestPath,
        body: ByteStream,
        options: WriteOptions,
    ) -> Result<FileEntry> {
        let operation = self.operation(WRITE);
        let WriteOptions { user } = options;
        self.upload(path, body, user.as_ref(), Form::Raw, operation).await?;
        match Files::stat(self, path).await? {
            Some(entry) => Ok(entry),
            None => {
                Err(operation.fail(ErrorKind::Conflict, format!("`{path}` was written and is gone again")))
            }
        }
    }

    async fn stat(&self, path: &GuestPath) -> Result<Option<FileEntry>> {
        let operation = self.operation(STAT);
        let answer =
            self.call::<EntryResponse>("/filesystem.Filesystem/Stat", &named(path), None, operation).await?;
        match answer {
            Ok(found) => entry(found.entry, operation).map(Some),
            // Below a file there is positively nothing, either.
            Err(error) if self.is_absence(&error) => Ok(None),
            Err(error) => Err(on(path, fault::rpc(operation, &error))),
        }
    }

    async fn list_opts(&self, path: &GuestPath, options: ListOptions) -> Result<Vec<FileEntry>> {
        let operation = self.operation(LIST);
        let ListOptions { depth } = options;
        if depth == 0 {
            return Err(Error::invalid(operation.name, "depth 0 is not valid: expected at least 1")
                .with_backend(operation.backend));
        }
        let PathRequest { path: text, path_b64 } = named(path);
        let message = ListDirRequest { path: text, path_b64, depth };
        let answer =
            self.call::<ListDirResponse>("/filesystem.Filesystem/ListDir", &message, None, operation).await?;
        let list = answer.map_err(|error| on(path, fault::rpc(operation, &error)))?;
        list.entries.into_iter().map(|info| entry(info, operation)).collect()
    }

    async fn make_dir(&self, path: &GuestPath) -> Result<bool> {
        let operation = self.operation(MAKE_DIR);
        let answer = self
            .call::<EntryResponse>("/filesystem.Filesystem/MakeDir", &named(path), None, operation)
            .await?;
        match answer {
            Ok(_) => Ok(true),
            Err(error) if error.code == Code::AlreadyExists => Ok(false),
            Err(error) => Err(on(path, fault::rpc(operation, &error))),
        }
    }

    async fn rename(&self, from: &GuestPath, to: &GuestPath) -> Result<FileEntry> {
        let operation = self.operation(RENAME);
        let PathRequest { path: source, path_b64: source_b64 } = named(from);
        let PathRequest { path: destination, path_b64: destination_b64 } = named(to);
        let message = MoveRequest { source, destination, source_b64, destination_b64 };
        let answer =
            self.call::<EntryResponse>("/filesystem.Filesystem/Move", &message, None, operation).await?;
        match answer {
            Ok(moved) => entry(moved.entry, operation),
            Err(error) => Err(on(from, fault::rpc(operation, &error))),
        }
    }

    async fn remove(&self, path: &GuestPath) -> Result<bool> {
        let operation = self.operation(REMOVE);
        // The agent calls it a success when there was nothing, so look first.
        if Files::stat(self, path).await?.is_none() {
            return Ok(false);
        }
        match self.call::<Empty>("/filesystem.Filesystem/Remove", &named(path), None, operation).await? {
            Ok(Empty {}) => Ok(true),
            Err(error) => Err(on(path, fault::rpc(operation, &error))),
        }
    }
}

impl GuestClient {
    /// Whether the agent says that there is positively nothing.
    fn is_absence(&self, error: &RpcError) -> bool {
        match (error.code, self.dialect) {
            (Code::NotFound, _) | (Code::InvalidArgument, Dialect::Own) => true,
            // Each version has another code for it, and the kernel's words.
            (_, Dialect::Envd) => error.message.contains("not a directory"),
            (_, Dialect::Own) => false,
        }
    }

    /// Reads no bytes at all of a file that has to be there.
    async fn nothing(&self, path: &GuestPath) -> Result<FileRead> {
        let operation = self.operation(READ);
        match Files::stat(self, path).await? {
            Some(entry) if entry.kind != sandbar_core::EntryKind::Directory => {
                Ok(FileRead { body: stream::empty().boxed(), length: Some(0) })
            }
            Some(_) => {
                Err(on(path, operation.fail(ErrorKind::InvalidInput, format!("`{path}` is a folder"))))
            }
            None => Err(on(
                path,
                Error::not_found(operation.name, format!("`{path}`")).with_backend(operation.backend),
            )),
        }
    }

    /// The error in an answer of the plain endpoints.
    pub(crate) async fn http_error(
        &self,
        operation: Operation,
        path: &GuestPath,
        response: Response<ResponseBody>,
    ) -> Error {
        let status = response.status();
        let body = match self.collect(response.into_body(), operation).await {
            Ok(body) => body,
            Err(error) => return error,
        };
        let message = match serde_json::from_slice::<HttpError>(&body) {
            Ok(error) => error.message,
            Err(_) => format!("status {status}"),
        };
        // Far away, somebody on the way may say so as well: that is no absence.
        if self.dialect == Dialect::Envd
            && status == StatusCode::NOT_FOUND
            && !message.contains("does not exist")
        {
            let why = format!("a file is answered with 404, and not in the agent's words: {message}");
            return on(path, fault::nonsense(operation, &why).with_retry(Retry::Never));
        }
        on(path, refusal(status, &message, operation))
    }
}

/// What the plain endpoints refuse, by its status.
fn refusal(status: StatusCode, message: &str, operation: Operation) -> Error {
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
    operation.fail(kind, fault::readable(message))
}

/// Why a body that came to its end is not whole all the same.
fn ended_early(body: &ResponseBody, operation: Operation) -> Option<Error> {
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
pub(crate) fn only_read(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unavailable => error
            .with_retry(Retry::Safe)
            .with_hint("it ended early, and what came is not whole; nothing inside was changed: try again"),
        _ => error,
    }
}

/// The body of a file, and its length where the agent told one.
fn read(client: GuestClient, response: Response<ResponseBody>) -> FileRead {
    let operation = client.operation(READ);
    let length = response.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    FileRead { body: content(client, response, operation), length }
}

/// What an answer carries, as it comes. It ends with an error where the agent broke it off.
pub(crate) fn content(
    client: GuestClient,
    response: Response<ResponseBody>,
    operation: Operation,
) -> ByteStream {
    let state = Some((client, response.into_body()));
    let body = stream::unfold(state, move |state| async move {
        let (client, mut body) = state?;
        let chunk = tokio::select! {
            biased;
            chunk = body.chunk() => chunk,
            error = patience::ends(&client, None, operation) => return Some((Err(only_read(error)), None)),
        };
        match chunk {
            Some(Ok(bytes)) => Some((Ok(bytes), Some((client, body)))),
            Some(Err(cause)) => {
                let error = client.lost(operation, Failure::Broken(cause)).await;
                Some((Err(only_read(error)), None))
            }
            None => ended_early(&body, operation).map(|error| (Err(error), None)),
        }
    });
    body.boxed()
}

/// An endpoint for content. Its parameters are text.
pub(crate) fn place(
    endpoint: &str,
    path: &GuestPath,
    user: Option<&UserName>,
    operation: Operation,
) -> Result<String> {
    if path.to_str().is_none() {
        return Err(Error::unsupported(
            operation.name,
            "a file name that is not UTF-8",
            "the guest's protocol names files with content by text",
        )
        .with_backend(operation.backend)
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
pub(crate) fn named(path: &GuestPath) -> PathRequest {
    PathRequest {
        path: String::from_utf8_lossy(path.as_bytes()).into_owned(),
        path_b64: path.to_str().is_none().then(|| bytes::Bytes::copy_from_slice(path.as_bytes())),
    }
}

/// Names what an error is about.
pub(crate) fn on(path: &GuestPath, error: Error) -> Error {
    error.with_resource(format!("`{path}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_survives_the_query() {
        let path = GuestPath::new("/a b/ü+%&#\n").unwrap();
        let (user, of) = (UserName::new("root").unwrap(), Operation::new(READ, "test"));
        let place = place(FILES, &path, Some(&user), of).unwrap();
        assert_eq!(place, "/files?path=/a%20b/%C3%BC%2B%25%26%23%0A&username=root");
        let odd = GuestPath::new(b"/\xff").unwrap();
        assert_eq!(super::place(FILES, &odd, None, of).unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(named(&odd).path_b64.unwrap(), &b"/\xff"[..]);
    }
}
