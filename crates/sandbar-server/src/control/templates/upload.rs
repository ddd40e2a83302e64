use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use futures::StreamExt as _;
use http::{HeaderMap, StatusCode, Uri, header};
use sandbar_wire::e2b::FileUpload;
use tokio::io::AsyncWriteExt as _;

use super::path::TemplatePath;
use crate::app::App;
use crate::control::extract::PathId;
use crate::error::{ApiError, ApiResult};
use crate::guest::authority;
use crate::seal::hex;
use crate::store::random;
use crate::tenant::Tenant;

/// Largest archive, in bytes: what a step may copy.
pub(super) const MAX_UPLOAD: u64 = 4 << 30;

/// Most bytes of archives that are kept for a tenant; the oldest go first.
const MAX_KEPT: u64 = 16 << 30;

/// Free disk space that an upload leaves, in bytes.
const MIN_FREE: u64 = 1 << 30;

/// How long an address for an upload is good: as long as SDKs take for one at most.
const GOOD_FOR: Duration = Duration::from_secs(3600);

/// How long an upload may say nothing.
const IDLE: Duration = Duration::from_secs(60);

/// Most addresses for uploads of a tenant that are good at once: more than the steps of all builds that it may have.
const MAX_PENDING: usize = 6_000;

/// Random bytes of the address of an upload: nobody guesses it.
const TOKEN_BYTES: usize = 32;

/// Addresses for uploads that were given out. Each is good for one upload, as long as this process runs.
#[derive(Debug, Default)]
pub(crate) struct Uploads(Mutex<HashMap<String, Pending>>);

#[derive(Clone, Debug)]
struct Pending {
    tenant: String,
    file: PathBuf,
    until: Instant,
}

impl Uploads {
    fn issue(&self, tenant: &str, file: PathBuf) -> ApiResult<String> {
        let token = hex(&random::<TOKEN_BYTES>()?);
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count =
            |pending: &HashMap<String, Pending>| pending.values().filter(|one| one.tenant == tenant).count();
        if count(&pending) >= MAX_PENDING {
            let now = Instant::now();
            pending.retain(|_, one| one.until > now);
            if count(&pending) >= MAX_PENDING {
                let message =
                    format!("{MAX_PENDING} uploads are awaited: send them, or try again in an hour");
                return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, message));
            }
        }
        let until = Instant::now() + GOOD_FOR;
        pending.insert(token.clone(), Pending { tenant: tenant.to_owned(), file, until });
        Ok(token)
    }

    /// Takes it: nobody else can use it while this upload goes on.
    fn take(&self, token: &str) -> Option<Pending> {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(token)?;
        (found.until > Instant::now()).then_some(found)
    }

    /// An upload that did not come to its end may be tried again.
    fn give_back(&self, token: String, pending: Pending) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(token, pending);
    }
}

/// `GET /templates/{id}/files/{hash}`
pub(super) async fn link(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    uri: Uri,
    headers: HeaderMap,
    path: TemplatePath,
) -> ApiResult<(StatusCode, axum::Json<FileUpload>)> {
    if app.store.template(&tenant.id, &path.template).await?.is_none() {
        return Err(app.no_such(&tenant, &path.template, &path.text).await?);
    }
    let file = app.uploaded(&tenant.id, &path.second)?;
    let present = tokio::fs::try_exists(&file).await.unwrap_or(false);
    let token = app.builds.uploads.issue(&tenant.id, file)?;
    let url = Some(format!("{}/uploads/{token}", reachable(&app, &uri, &headers)));
    Ok((StatusCode::CREATED, axum::Json(FileUpload { present, url })))
}

/// `PUT /uploads/{token}`: who has the address may send the files, once.
pub(super) async fn put(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    PathId(token): PathId,
    body: Body,
) -> ApiResult<StatusCode> {
    let Some(pending) = app.builds.uploads.take(&token) else {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "this address is not good for an upload, or no more: ask for another one",
        ));
    };
    let received = receive(&headers, body, &pending.file).await;
    if received.is_err() {
        app.builds.uploads.give_back(token, pending);
    }
    received.map(|()| StatusCode::OK)
}

impl App {
    /// Where files of a tenant's stand that a step copies. Their hash is the client's: it names nothing but files of its own.
    pub(super) fn uploaded(&self, tenant: &str, hash: &str) -> ApiResult<PathBuf> {
        if hash.len() != 64 || !hash.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
            return Err(ApiError::bad_request(
                "the hash of the files is not valid: expected 64 hexadecimal digits in lower case",
            ));
        }
        Ok(self.config.data.join("uploads").join(tenant).join(format!("{hash}.tar")))
    }
}

async fn receive(headers: &HeaderMap, body: Body, file: &Path) -> ApiResult<()> {
    let declared =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > MAX_UPLOAD) {
        return Err(too_large());
    }
    let folder = file.parent().expect("it is in a folder").to_owned();
    let made = tokio::task::spawn_blocking(move || {
        make_private(&folder)?;
        let free = rustix::fs::statvfs(&folder)?;
        let free = free.f_bavail.saturating_mul(free.f_frsize);
        if free < MIN_FREE.saturating_add(declared.unwrap_or(0)) {
            return Ok(None);
        }
        tempfile::NamedTempFile::new_in(&folder).map(Some)
    });
    let Some(staged) = made.await.map_err(std::io::Error::other).flatten().map_err(failed)? else {
        return Err(ApiError::new(
            StatusCode::INSUFFICIENT_STORAGE,
            "the server has too little free disk space",
        ));
    };
    let mut target = tokio::fs::File::from_std(staged.reopen().map_err(failed)?);
    let (mut body, mut length) = (body.into_data_stream(), 0u64);
    loop {
        let Ok(next) = tokio::time::timeout(IDLE, body.next()).await else {
            let message = format!("the upload said nothing for {} s", IDLE.as_secs());
            return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, message));
        };
        let Some(piece) = next else { break };
        let piece = piece.map_err(|_| ApiError::bad_request("the upload ended before it was whole"))?;
        length += piece.len() as u64;
        if length > MAX_UPLOAD {
            return Err(too_large());
        }
        target.write_all(&piece).await.map_err(failed)?;
    }
    target.sync_all().await.map_err(failed)?;
    let file = file.to_owned();
    let kept = tokio::task::spawn_blocking(move || {
        staged.persist(&file).map_err(|error| error.error)?;
        make_room(&file)
    });
    kept.await.map_err(std::io::Error::other).flatten().map_err(failed)
}

/// Removes the oldest archives of a tenant until the rest is not too much. The new one stays.
fn make_room(newest: &Path) -> std::io::Result<()> {
    let folder = newest.parent().expect("it is in a folder");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        // One that somebody else removed meanwhile takes no room.
        let Ok(metadata) = entry.metadata() else { continue };
        if entry.path().extension().is_some_and(|extension| extension == "tar") {
            files.push((metadata.modified()?, metadata.len(), entry.path()));
        }
    }
    files.sort();
    let mut total: u64 = files.iter().map(|(_, length, _)| length).sum();
    for (_, length, path) in files {
        if total <= MAX_KEPT {
            break;
        }
        if path != newest {
            std::fs::remove_file(path)?;
            total -= length;
        }
    }
    Ok(())
}

/// Makes a folder of the server's that is nobody else's business.
pub(super) fn make_private(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// The origin by which the client reached the server, unless the operator said which it is.
fn reachable(app: &App, uri: &Uri, headers: &HeaderMap) -> String {
    if app.config.public_url.is_some() {
        return app.origin.clone();
    }
    let host = authority(uri, headers).ok().flatten();
    let Some(host) = host.filter(|host| host.parse::<http::uri::Authority>().is_ok()) else {
        return app.origin.clone();
    };
    let scheme = if app.config.tls.is_some() { "https" } else { "http" };
    format!("{scheme}://{host}")
}

fn too_large() -> ApiError {
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the files are larger than {MAX_UPLOAD} bytes"))
}

#[allow(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
fn failed(error: std::io::Error) -> ApiError {
    tracing::error!(%error, "an upload could not be kept");
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the server could not keep the upload")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_good_once() {
        let uploads = Uploads::default();
        let token = uploads.issue("t", "/a".into()).unwrap();
        let address = uploads.take(&token).unwrap();
        assert!(uploads.take(&token).is_none());
        uploads.give_back(token.clone(), address);
        assert!(uploads.take(&token).is_some());
        assert!(uploads.take("other").is_none());
    }

    #[test]
    fn a_tenant_that_asks_for_all_addresses_takes_none_of_others() {
        let uploads = Uploads::default();
        for _ in 0..MAX_PENDING {
            uploads.issue("greedy", "/a".into()).unwrap();
        }
        assert_eq!(uploads.issue("greedy", "/a".into()).unwrap_err().status, StatusCode::TOO_MANY_REQUESTS);
        assert!(uploads.issue("other", "/a".into()).is_ok());
    }
}
