use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures::{StreamExt as _, stream};
use http::{HeaderMap, StatusCode, header};
use sandbar_core::{Error, ErrorKind, ExitStatus, GuestPath, ReadOptions, WriteOptions};
use sandbar_wire::e2b::{VolumeEntry, VolumeMetadata};
use serde::Deserialize;
use subtle::ConstantTimeEq as _;

use super::entry::{self, FORMAT};
use super::fault::{Fault, FaultResult};
use super::manage::token;
use super::room::Visit;
use super::script;
use crate::app::App;
use crate::control::extract::{Json, PathId, Query};

/// Largest file that is written, in bytes.
const MAX_FILE: u64 = 64 << 30;

/// How long a body may say nothing.
const IDLE: Duration = Duration::from_secs(60);

/// Most levels of folders in one list.
const MAX_DEPTH: u32 = 64;

#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    path: Option<String>,
    depth: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<u32>,
    force: Option<bool>,
}

/// A path in a volume that the caller may reach.
struct Place {
    visit: Visit,
    /// From the root of the volume.
    path: String,
    /// In the sandbox.
    inside: String,
}

/// `GET …/path`
pub(super) async fn stat(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    PathId(id): PathId,
    Query(asked): Query<Asked>,
) -> FaultResult<axum::Json<VolumeEntry>> {
    let place = place(&app, &headers, &id, &asked).await?;
    place.entry().await.map(axum::Json)
}

/// `PATCH …/path`
pub(super) async fn change(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    PathId(id): PathId,
    Query(asked): Query<Asked>,
    Json(wanted): Json<VolumeMetadata>,
) -> FaultResult<axum::Json<VolumeEntry>> {
    let place = place(&app, &headers, &id, &asked).await?;
    let owner = owner(wanted.uid, wanted.gid, ":")?;
    place.run(script::CHANGE, &[&owner, &mode(wanted.mode)?]).await?;
    place.entry().await.map(axum::Json)
}

/// `DELETE …/path`
pub(super) async fn remove(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    PathId(id): PathId,
    Query(asked): Query<Asked>,
) -> FaultResult<StatusCode> {
    let place = place(&app, &headers, &id, &asked).await?;
    if place.path == "/" {
        return Err(Fault::invalid("the root of a volume can't be removed: remove the volume"));
    }
    place.run(script::REMOVE, &[]).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET …/dir`
pub(super) async fn list(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    PathId(id): PathId,
    Query(asked): Query<Asked>,
) -> FaultResult<axum::Json<Vec<VolumeEntry>>> {
    let depth = asked.depth.unwrap_or(1);
    if !(1..=MAX_DEPTH).contains(&depth) {
        return Err(Fault::invalid(format!("depth {depth} is not valid: expected 1 to {MAX_DEPTH}")));
    }
    let place = place(&app, &headers, &id, &asked).await?;
    let said = place.run(script::LIST, &[FORMAT, &depth.to_string()]).await?;
    entry::parse(&said, &place.path).map(axum::Json).ok_or_else(|| {
        Fault::invalid(
            "the folder has more entries than one answer holds: list folders below it, or with less depth",
        )
    })
}

/// `POST …/dir`
pub(super) async fn make_dir(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    PathId(id): PathId,
    Query(asked): Query<Asked>,
) -> FaultResult<(StatusCode, axum::Json<VolumeEntry>)> {
    let place = place(&app, &headers, &id, &asked).await?;
    let owner = owner(asked.uid, asked.gid, &place.visit.room.owner)?;
    let force = if asked.force == Some(true) { "force" } else { "" };
    place.run(script::MAKE_DIR, &[&owner, &mode(asked.mode)?, force]).await?;
    Ok((StatusCode::CREATED, axum::Json(place.entry().await?)))
}

/// `GET …/file`
pub(super) async fn read(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    PathId(id): PathId,
    Query(asked): Query<Asked>,
) -> FaultResult<Response> {
    let place = place(&app, &headers, &id, &asked).await?;
    place.run(script::READABLE, &[]).await?;
    let room = &place.visit.room;
    let options = ReadOptions { range: None, user: room.root.clone() };
    let read = room.sandbox.files().read_opts(&place.guest()?, options).await?;
    let length = read.length;
    // The sandbox stays as long as somebody reads.
    let body = stream::unfold((read.body, place), |(mut body, place)| async move {
        body.next().await.map(|piece| (piece, (body, place)))
    });
    let mut response = Body::from_stream(body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/octet-stream"));
    if let Some(length) = length {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    Ok(response)
}

/// `PUT …/file`
pub(super) async fn write(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    PathId(id): PathId,
    Query(asked): Query<Asked>,
    body: Body,
) -> FaultResult<(StatusCode, axum::Json<VolumeEntry>)> {
    let place = place(&app, &headers, &id, &asked).await?;
    let mode = mode(asked.mode)?;
    let room = &place.visit.room;
    let owner = owner(asked.uid, asked.gid, &room.owner)?;
    // Without a word on it a file is overwritten, as SDKs say of their call.
    let keep = if asked.force == Some(false) { "keep" } else { "" };
    place.run(script::WRITABLE, &[&room.owner, keep, &owner]).await?;
    let pieces = body.into_data_stream();
    let pieces = stream::try_unfold((pieces, 0u64), |(mut pieces, length)| async move {
        let failed = |why: &str| Error::invalid("write", why);
        let Ok(next) = tokio::time::timeout(IDLE, pieces.next()).await else {
            return Err(failed("the body said nothing for a minute"));
        };
        let Some(piece) = next.transpose().map_err(|_| failed("the body ended before it was whole"))? else {
            return Ok(None);
        };
        let length = length + piece.len() as u64;
        if length > MAX_FILE {
            return Err(failed("the file is larger than 64 GiB"));
        }
        Ok(Some((piece, (pieces, length))))
    });
    let options = WriteOptions { user: room.root.clone() };
    room.sandbox.files().write_opts(&place.guest()?, pieces.boxed(), options).await?;
    place.run(script::CHANGE, &[&owner, &mode]).await?;
    Ok((StatusCode::CREATED, axum::Json(place.entry().await?)))
}

/// Lets in who has the volume's token. Whether there is such a volume at all is said to nobody else.
async fn place(app: &Arc<App>, headers: &HeaderMap, id: &str, asked: &Asked) -> FaultResult<Place> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default().trim();
    if !bool::from(given.as_bytes().ct_eq(token(app, id).as_bytes())) {
        return Err(Fault::new(StatusCode::UNAUTHORIZED, "the volume's token is missing or wrong"));
    }
    let path = asked.path.as_deref().unwrap_or_default();
    let path = GuestPath::new(format!("/{path}")).map_err(|error| Fault::invalid(error.message()))?;
    let path = path.to_str().expect("it was made of text").to_owned();
    let Some(volume) = app.store.volume(id).await? else {
        return Err(Fault::new(StatusCode::NOT_FOUND, "the volume does not exist any more"));
    };
    let inside = if path == "/" { script::ROOT.to_owned() } else { format!("{}{path}", script::ROOT) };
    Ok(Place { visit: app.rooms.visit(app, &volume).await?, path, inside })
}

impl Place {
    /// Runs a script on the path, and answers what it said.
    async fn run(&self, script: &str, arguments: &[&str]) -> FaultResult<bytes::Bytes> {
        let mut all = vec![self.inside.as_str()];
        all.extend_from_slice(arguments);
        let output = self.visit.run(script, &all).await?;
        let path = self.path.as_str();
        match output.status {
            ExitStatus::Code(0) if output.truncated => {
                Err(Fault::invalid("there is more than one answer holds"))
            }
            ExitStatus::Code(0) => Ok(output.stdout),
            ExitStatus::Code(script::MISSING) => {
                Err(Fault::new(StatusCode::NOT_FOUND, format!("path '{path}' does not exist")))
            }
            ExitStatus::Code(script::OUTSIDE) => {
                Err(Fault::invalid(format!("path '{path}' leads out of the volume by a link")))
            }
            ExitStatus::Code(script::EXISTS) => {
                Err(Fault::new(StatusCode::CONFLICT, format!("path '{path}' exists already")))
            }
            ExitStatus::Code(script::NO_FOLDER) => {
                Err(Fault::invalid(format!("path '{path}' is, or leads through, what is no directory")))
            }
            ExitStatus::Code(script::NO_ID) => Err(Fault::invalid(format!(
                "path '{path}' can't have that owner: sandboxes of this server have no such number, or no other than their own"
            ))),
            ExitStatus::Code(script::NO_FILE) => Err(Fault::invalid(format!("path '{path}' is no file"))),
            status => {
                let said: String =
                    output.stderr_lossy().lines().last().unwrap_or_default().chars().take(200).collect();
                Err(Fault::invalid(format!("path '{path}': {status}: {}", said.replace(script::ROOT, ""))))
            }
        }
    }

    async fn entry(&self) -> FaultResult<VolumeEntry> {
        let said = self.run(script::STAT, &[FORMAT]).await?;
        let entries = entry::parse(&said, &self.path).unwrap_or_default();
        entries.into_iter().next().ok_or_else(|| {
            Fault::from(Error::new(ErrorKind::Protocol, "stat", "the entry could not be read"))
        })
    }

    fn guest(&self) -> FaultResult<GuestPath> {
        Ok(GuestPath::new(&self.inside)?)
    }
}

/// Largest number of a user or group: the one above means none to the kernel.
const MAX_ID: u32 = u32::MAX - 1;

/// An owner for `chown`; of what is not said, the other one's.
fn owner(uid: Option<u32>, gid: Option<u32>, otherwise: &str) -> FaultResult<String> {
    for (name, id) in [("uid", uid), ("gid", gid)] {
        if let Some(id) = id.filter(|id| *id > MAX_ID) {
            return Err(Fault::invalid(format!("{name} {id} is not valid: expected 0 to {MAX_ID}")));
        }
    }
    let (user, group) = otherwise.split_once(':').unwrap_or_default();
    let number =
        |asked: Option<u32>, other: &str| asked.map_or_else(|| other.to_owned(), |id| id.to_string());
    Ok(format!("{}:{}", number(uid, user), number(gid, group)))
}

fn mode(asked: Option<u32>) -> FaultResult<String> {
    match asked {
        None => Ok(String::new()),
        Some(mode) if mode <= 0o7777 => Ok(format!("{mode:04o}")),
        Some(mode) => Err(Fault::invalid(format!("mode {mode} is not valid: expected 0 to 4095"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_completed() {
        assert_eq!(owner(None, None, ":").unwrap(), ":");
        assert_eq!(owner(Some(1), None, ":").unwrap(), "1:");
        assert_eq!(owner(None, Some(2), "1000:1000").unwrap(), "1000:2");
        assert!(owner(Some(u32::MAX), None, ":").is_err() && owner(None, Some(u32::MAX), ":").is_err());
        assert!(mode(Some(0o10000)).is_err());
        assert_eq!(mode(Some(0o644)).unwrap(), "0644");
    }
}
