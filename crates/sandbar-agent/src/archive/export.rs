use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use sandbar_wire::envd::HttpError;

use super::program::{Job, Program};
use crate::files::{Access, Query};
use crate::http::{Body, BodyWriter, Response};
use crate::state::State;

/// Pieces that wait for the connection, so that reading and sending overlap.
const PIECES: usize = 2;

/// `GET /sandbar/archive`. What fails before the first byte is an answer of its own; what fails later cuts the body off, and without its end marker the
/// archive is not whole either.
pub(crate) async fn export(state: &Rc<State>, query: Option<&str>) -> Result<Response, HttpError> {
    let (access, path) = asked(state, query)?;
    if path == Path::new("/") {
        return Err(HttpError::new(400, "path '/' can't be exported: name a folder or file below it"));
    }
    let program = Program::start(state, &access.user, Job::Export, &path).await?;
    let first = program.output().await.map_err(|error| HttpError::new(500, error.to_string()))?;
    if first.is_empty() {
        return Err(match program.outcome().await {
            Some(Err(error)) => error,
            Some(Ok(_)) => HttpError::new(500, "the program that moves archives wrote none"),
            None => killed(),
        });
    }
    let (writer, body) = Body::channel(PIECES, None);
    tokio::task::spawn_local(send(program, first, writer));
    let mut response = http::Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// Whose and what a request means.
pub(super) fn asked(state: &State, query: Option<&str>) -> Result<(Access, PathBuf), HttpError> {
    let query = Query::parse(query)?;
    let path = query.get("path").filter(|path| !path.is_empty());
    let path = path.ok_or_else(|| HttpError::new(400, "missing query parameter `path`"))?;
    let user = query.get("username").filter(|name| !name.is_empty());
    let access = Access::of(state, user, None)?;
    let path = access.resolve(path);
    Ok((access, path))
}

pub(super) fn killed() -> HttpError {
    HttpError::new(500, "the program that moves archives was killed")
}

async fn send(program: Program, first: Bytes, writer: BodyWriter) {
    let mut piece = Ok(first);
    loop {
        match piece {
            Ok(bytes) if bytes.is_empty() => break,
            Ok(bytes) => {
                if writer.send(Ok(bytes)).await.is_err() {
                    // Nobody reads any more; the program ends when it writes the next time.
                    return;
                }
            }
            Err(error) => {
                let _ = writer.send(Err(error)).await;
                return;
            }
        }
        piece = program.output().await;
    }
    let broken = match program.outcome().await {
        Some(Ok(_)) => return,
        Some(Err(error)) => error.message,
        None => killed().message,
    };
    let _ = writer.send(Err(io::Error::other(broken))).await;
}
