use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use rustix::fs::{Mode, OFlags};
use sandbar_wire::envd::{HttpError, Operation};

use super::access::{Access, Query};
use super::encoding::{Encoding, Gzip, choose};
use super::range::{Instead, Part, Version, condition, is_partial, part};
use super::write::is;
use crate::blocking;
use crate::http::{Body, BodyWriter, Response, empty};
use crate::state::State;

/// Bytes of one read. Large, as each read costs two changes of thread; below what an allocator maps anew each time.
const CHUNK_BYTES: usize = 512 << 10;
/// Pieces that wait for the connection, so that reading and sending overlap.
const PIECES: usize = 2;

/// `GET` and `HEAD` of `/files`.
pub(crate) async fn download(
    state: &State,
    method: &Method,
    query: Option<&str>,
    headers: &HeaderMap,
) -> Result<Response, HttpError> {
    let query = Query::parse(query)?;
    let access = Access::check(state, headers, &query, Operation::Read)?;
    let path = access.path.as_deref().ok_or_else(|| HttpError::new(400, "missing query parameter `path`"))?;
    let path = access.resolve(path);
    let opened = path.clone();
    let (file, meta) = blocking::run(move || open(&opened)).await??;
    let encoding = if is_partial(headers) { Encoding::Identity } else { choose(headers)? };
    let version = Version::new(meta.mtime(), meta.mtime_nsec(), meta.len());
    let mut response = respond(file, &meta, &version, encoding, headers, method).await?;
    let answer = response.headers_mut();
    answer.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    answer.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    answer.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Files are the guest's: a browser must not take one for a page of whoever serves it.
    answer.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    let mut insert = |name, value: String| {
        if let Ok(value) = HeaderValue::try_from(value) {
            answer.insert(name, value);
        }
    };
    insert(header::CONTENT_DISPOSITION, disposition(&path));
    insert(header::LAST_MODIFIED, httpdate::fmt_http_date(version.modified));
    insert(header::ETAG, version.etag);
    Ok(response)
}

#[expect(clippy::needless_pass_by_value, reason = "a function for `map_err`")]
fn internal(error: io::Error) -> HttpError {
    HttpError::new(500, error.to_string())
}

/// Opens a file that can be read to an end. Opening never waits, as a pipe without a writer would.
fn open(path: &Path) -> Result<(File, std::fs::Metadata), HttpError> {
    let shown = path.display();
    let file = rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY,
        Mode::empty(),
    )
    .map(File::from)
    .map_err(io::Error::from);
    let file = file.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            HttpError::new(404, format!("path '{shown}' does not exist"))
        }
        io::ErrorKind::PermissionDenied => HttpError::new(403, format!("read '{shown}': permission denied")),
        _ if is(&error, rustix::io::Errno::LOOP) => {
            HttpError::new(400, format!("path '{shown}' is a cyclic symbolic link"))
        }
        _ if is(&error, rustix::io::Errno::NXIO) => {
            HttpError::new(400, format!("path '{shown}' is not a regular file"))
        }
        _ => HttpError::new(500, format!("read '{shown}': {error}")),
    })?;
    let meta = file.metadata().map_err(|error| HttpError::new(500, format!("read '{shown}': {error}")))?;
    if meta.is_dir() {
        return Err(HttpError::new(400, format!("path '{shown}' is a directory")));
    }
    if !meta.is_file() {
        return Err(HttpError::new(400, format!("path '{shown}' is not a regular file")));
    }
    Ok((file, meta))
}

async fn respond(
    file: File,
    meta: &std::fs::Metadata,
    version: &Version,
    encoding: Encoding,
    headers: &HeaderMap,
    method: &Method,
) -> Result<Response, HttpError> {
    match condition(headers, version) {
        Some(Instead::NotModified) => return Ok(empty(304)),
        Some(Instead::PreconditionFailed) => return Ok(empty(412)),
        None => {}
    }
    let mut source = Source { file: Some(file), offset: 0, left: Some(meta.len()) };
    // Generated files (procfs, sysfs) have no size; they are read to their end.
    let mut first = None;
    if meta.len() == 0 {
        source.left = None;
        let piece = source.read().await.map_err(internal)?;
        if piece.is_empty() {
            source.left = Some(0);
        }
        first = Some(piece);
    }
    let size = source.left;
    let mut status = StatusCode::OK;
    let mut content_range = None;
    if let Some(size) = size {
        match part(headers, version, size) {
            Part::Whole => {}
            Part::Bytes(start, count) => {
                source.offset = start;
                source.left = Some(count);
                status = StatusCode::PARTIAL_CONTENT;
                content_range = Some(format!("bytes {start}-{}/{size}", start + count - 1));
            }
            Part::Unsatisfiable => {
                let mut response = empty(416);
                let range = HeaderValue::try_from(format!("bytes */{size}"));
                response
                    .headers_mut()
                    .insert(header::CONTENT_RANGE, range.map_err(|e| internal(io::Error::other(e)))?);
                return Ok(response);
            }
        }
    }
    let length = if encoding == Encoding::Gzip { None } else { source.left };
    let body = if method == Method::HEAD || length == Some(0) {
        Body::Full(None)
    } else {
        let (writer, body) = Body::channel(PIECES, length);
        tokio::task::spawn_local(send(source, first, encoding, writer));
        body
    };
    let mut response = http::Response::new(body);
    *response.status_mut() = status;
    let answer = response.headers_mut();
    if let Some(length) = length {
        answer.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    if encoding == Encoding::Gzip {
        answer.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if let Some(range) = content_range.and_then(|range| HeaderValue::try_from(range).ok()) {
        answer.insert(header::CONTENT_RANGE, range);
    }
    Ok(response)
}

/// Sends a file; an error cuts the answer off, so that nobody takes a part for the whole.
async fn send(mut source: Source, first: Option<Bytes>, encoding: Encoding, writer: BodyWriter) {
    let mut gzip = (encoding == Encoding::Gzip).then(Gzip::new);
    let mut next = first;
    loop {
        let piece = match next.take() {
            Some(piece) => Ok(piece),
            None => source.read().await,
        };
        let is_last = piece.as_ref().is_ok_and(Bytes::is_empty);
        let piece = match (piece, gzip.take()) {
            (Ok(_), Some(encoder)) if is_last => encoder.finish(),
            (Ok(piece), Some(encoder)) => match compress(encoder, piece).await {
                Ok((encoder, piece)) => {
                    gzip = Some(encoder);
                    Ok(piece)
                }
                Err(error) => Err(error),
            },
            (piece, _) => piece,
        };
        let failed = piece.is_err();
        if piece.as_ref().is_ok_and(Bytes::is_empty) {
            if is_last {
                return;
            }
            continue;
        }
        if writer.send(piece).await.is_err() || is_last || failed {
            return;
        }
    }
}

async fn compress(mut encoder: Gzip, piece: Bytes) -> io::Result<(Gzip, Bytes)> {
    blocking::run(move || encoder.piece(&piece).map(|piece| (encoder, piece))).await?
}

/// What is left of a file to read.
struct Source {
    file: Option<File>,
    offset: u64,
    /// Unknown for generated files.
    left: Option<u64>,
}

impl Source {
    /// The next piece; empty at the end. A file that became shorter is an error.
    async fn read(&mut self) -> io::Result<Bytes> {
        let left = self.left.unwrap_or(u64::MAX);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        if wanted == 0 {
            return Ok(Bytes::new());
        }
        let Some(file) = self.file.take() else { return Err(io::ErrorKind::UnexpectedEof.into()) };
        let offset = self.offset;
        let (file, result) = blocking::run(move || {
            let mut buffer = BytesMut::zeroed(wanted);
            let result = file.read_at(&mut buffer, offset).map(|count| {
                buffer.truncate(count);
                buffer.freeze()
            });
            (file, result)
        })
        .await?;
        self.file = Some(file);
        let piece = result?;
        self.offset += piece.len() as u64;
        if let Some(left) = &mut self.left {
            if piece.is_empty() {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the file became shorter while it was read",
                ));
            }
            *left -= piece.len() as u64;
        }
        Ok(piece)
    }
}

/// The file's name for a browser: quoted where it is plain ASCII, else by RFC 5987.
fn disposition(path: &Path) -> String {
    use std::fmt::Write;
    use std::os::unix::ffi::OsStrExt;
    let name = path.file_name().unwrap_or_default();
    if let Some(plain) =
        name.to_str().filter(|n| n.bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'"' && b != b'\\'))
    {
        return format!("inline; filename=\"{plain}\"");
    }
    let mut text = "inline; filename*=utf-8''".to_owned();
    for byte in name.as_bytes() {
        let _ = if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            write!(text, "{}", char::from(*byte))
        } else {
            write!(text, "%{byte:02X}")
        };
    }
    text
}
