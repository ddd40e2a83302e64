use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::header::{self, HeaderMap};
use hyper::body::Incoming;
use sandbar_wire::envd::{FileEntry, HttpError, Operation, metadata_from_headers};

use super::access::{Access, Query};
use super::multipart::{Item, Multipart};
use super::write::Target;
use crate::blocking;
use crate::filesystem::metadata;
use crate::http::{Response, json, next_piece};
use crate::paths;
use crate::state::State;

/// Bytes that are collected before they are written: each write costs two changes of thread.
const BATCH_BYTES: usize = 1 << 20;

/// `POST /files`.
pub(crate) async fn upload(
    state: &State,
    query: Option<&str>,
    headers: &HeaderMap,
    mut body: Incoming,
) -> Result<Response, HttpError> {
    let query = Query::parse(query)?;
    let access = Access::check(state, headers, &query, Operation::Write)?;
    let metadata =
        metadata_from_headers(headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())))?;
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let gzip = is_gzip(headers)?;
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let paths = match kind.as_str() {
        "multipart/form-data" if gzip => {
            return Err(HttpError::new(400, "gzip is accepted for `application/octet-stream` only"));
        }
        "multipart/form-data" => {
            let mut multipart = Multipart::new(content_type)?;
            parts(&access, &mut multipart, &mut body, &metadata).await?
        }
        "application/octet-stream" => {
            let path = access
                .path
                .as_deref()
                .ok_or_else(|| HttpError::new(400, "missing query parameter `path`"))?;
            let path = access.resolve(path);
            let mut writer = Writer::open(&access, &path, gzip).await?;
            while let Some(piece) = read(&mut body).await? {
                writer.add(piece).await?;
            }
            writer.commit(&metadata).await?;
            vec![path]
        }
        other => {
            let text = format!(
                "content type `{other}` is not supported; send `multipart/form-data` or `application/octet-stream`"
            );
            return Err(HttpError::new(400, text));
        }
    };
    let entries = blocking::run(move || paths.iter().map(|path| entry(path)).collect::<Vec<_>>()).await;
    Ok(json(200, &entries?))
}

fn is_gzip(headers: &HeaderMap) -> Result<bool, HttpError> {
    match headers
        .get(header::CONTENT_ENCODING)
        .map(|value| value.to_str().unwrap_or("?").to_ascii_lowercase())
    {
        None => Ok(false),
        Some(encoding) if encoding == "identity" || encoding.is_empty() => Ok(false),
        Some(encoding) if encoding == "gzip" => Ok(true),
        Some(encoding) => {
            Err(HttpError::new(400, format!("content encoding `{encoding}` is not supported; use gzip")))
        }
    }
}

async fn read(body: &mut Incoming) -> Result<Option<Bytes>, HttpError> {
    next_piece(body).await.map_err(|error| HttpError::new(400, format!("read the body: {error}")))
}

/// Writes each part named `file`, in the order they come.
async fn parts(
    access: &Access,
    multipart: &mut Multipart,
    body: &mut Incoming,
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<PathBuf>, HttpError> {
    let mut written = Vec::new();
    let mut seen = BTreeSet::new();
    let mut writer: Option<Writer> = None;
    loop {
        while let Some(item) = multipart.next_item()? {
            match item {
                Item::Part { name, filename } => {
                    if name != "file" {
                        continue;
                    }
                    let given =
                        access.path.as_deref().or(filename.as_deref()).filter(|path| !path.is_empty());
                    let given = given.ok_or_else(|| HttpError::new(400, "a part `file` has no file name"))?;
                    let path = access.resolve(given);
                    if !seen.insert(path.clone()) {
                        let text = format!("path '{}' is given twice in one upload", path.display());
                        return Err(HttpError::new(400, text));
                    }
                    writer = Some(Writer::open(access, &path, false).await?);
                    written.push(path);
                }
                Item::Data(data) => {
                    if let Some(writer) = &mut writer {
                        writer.add(data).await?;
                    }
                }
                Item::End => {
                    if let Some(writer) = writer.take() {
                        writer.commit(metadata).await?;
                    }
                }
            }
        }
        match read(body).await? {
            Some(piece) => multipart.push(&piece),
            None => return multipart.finish().map(|()| written),
        }
    }
}

/// Collects pieces and writes them in large batches, off the serving thread.
struct Writer {
    target: Option<Target>,
    pieces: Vec<Bytes>,
    collected: usize,
}

impl Writer {
    async fn open(access: &Access, path: &Path, gzip: bool) -> Result<Self, HttpError> {
        let (context, path) = (access.context.clone(), path.to_owned());
        let target = off(move || Target::open(&context, &path, gzip)).await?;
        Ok(Self { target: Some(target), pieces: Vec::new(), collected: 0 })
    }

    async fn add(&mut self, piece: Bytes) -> Result<(), HttpError> {
        self.collected += piece.len();
        self.pieces.push(piece);
        if self.collected >= BATCH_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<(), HttpError> {
        let Some(mut target) = self.target.take() else {
            return Err(HttpError::new(500, "the upload failed before"));
        };
        let pieces = std::mem::take(&mut self.pieces);
        self.collected = 0;
        self.target = Some(off(move || target.write(&pieces).map(|()| target)).await?);
        Ok(())
    }

    async fn commit(mut self, metadata: &BTreeMap<String, String>) -> Result<(), HttpError> {
        self.flush().await?;
        let (Some(target), metadata) = (self.target.take(), metadata.clone()) else { return Ok(()) };
        off(move || target.commit(&metadata)).await
    }
}

async fn off<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HttpError> + Send + 'static,
) -> Result<T, HttpError> {
    blocking::run(work).await?
}

/// A file as an upload's answer describes it.
pub(super) fn entry(path: &Path) -> FileEntry {
    FileEntry {
        path: paths::text(path.as_os_str()).0,
        name: paths::text(path.file_name().unwrap_or_default()).0,
        kind: "file".to_owned(),
        metadata: metadata(path),
    }
}
