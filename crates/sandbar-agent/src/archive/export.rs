use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue};
use hyper::body::{Body as HttpBody, Frame};
use sandbar_wire::envd::{ARCHIVE_ERROR_TRAILER, HttpError};
use tokio::sync::mpsc;

use super::program::{Job, Program};
use crate::files::{Access, Query};
use crate::http::{Body, Response};
use crate::state::State;

/// Pieces that wait for the connection, so that reading and sending overlap.
const PIECES: usize = 2;
/// Longest reason in a trailer, in characters: a client reads no more than some KiB of them.
const MAX_REASON: usize = 1000;

/// `GET /sandbar/archive`. What fails before the first byte is an answer of its own; what fails later is told in a trailer, or cuts the body off
/// where the client takes none. Without its end marker the archive is not whole either.
pub(crate) async fn export(
    state: &Rc<State>,
    query: Option<&str>,
    headers: &HeaderMap,
) -> Result<Response, HttpError> {
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
    let early = if takes_trailers(headers) { Early::Told } else { Early::BrokenOff };
    let (writer, pieces) = mpsc::channel(PIECES);
    tokio::task::spawn_local(send(program, first, writer, early));
    let mut response = http::Response::new(Body::Frames(Box::pin(Pieces(pieces))));
    let headers = response.headers_mut();
    if early == Early::Told {
        headers.insert(header::TRAILER, HeaderValue::from_static(ARCHIVE_ERROR_TRAILER));
    }
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

/// How the end of an export that failed looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Early {
    /// By a trailer with the reason.
    Told,
    /// The body is cut off.
    BrokenOff,
}

fn takes_trailers(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::TE).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}

/// The frames of a body.
struct Pieces(mpsc::Receiver<io::Result<Frame<Bytes>>>);

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.get_mut().0.poll_recv(cx)
    }
}

async fn send(program: Program, first: Bytes, writer: mpsc::Sender<io::Result<Frame<Bytes>>>, early: Early) {
    let mut piece = Ok(first);
    let broken = loop {
        match piece {
            Ok(bytes) if bytes.is_empty() => {
                break match program.outcome().await {
                    Some(Ok(_)) => return,
                    Some(Err(error)) => error,
                    None => killed(),
                };
            }
            Ok(bytes) => {
                if writer.send(Ok(Frame::data(bytes))).await.is_err() {
                    // Nobody reads any more; the program ends when it writes the next time.
                    return;
                }
            }
            Err(error) => break HttpError::new(500, format!("read what is packed: {error}")),
        }
        piece = program.output().await;
    };
    let end = match early {
        Early::Told => trailer(broken),
        Early::BrokenOff => Err(io::Error::other(broken.message)),
    };
    let _ = writer.send(end).await;
}

/// The trailer that tells an error.
fn trailer(HttpError { code, message }: HttpError) -> io::Result<Frame<Bytes>> {
    let error = HttpError { code, message: message.chars().take(MAX_REASON).collect() };
    // The one control character that JSON leaves as it is, and no header may have.
    let text = serde_json::to_string(&error).map_err(io::Error::other)?.replace('\u{7f}', "\\u007f");
    let value = HeaderValue::from_bytes(text.as_bytes()).map_err(io::Error::other)?;
    let name = HeaderName::from_static(ARCHIVE_ERROR_TRAILER);
    Ok(Frame::trailers(HeaderMap::from_iter([(name, value)])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_reason_fits_in_a_trailer() {
        let message = format!("'a\u{1b}\u{7f}\n\u{85}ü{}'", "x".repeat(100_000));
        let frame = trailer(HttpError::new(403, message.clone())).unwrap();
        let trailers = frame.into_trailers().unwrap();
        let told: HttpError = serde_json::from_slice(trailers[ARCHIVE_ERROR_TRAILER].as_bytes()).unwrap();
        assert_eq!(told.code, 403);
        assert!(message.starts_with(&told.message) && told.message.chars().count() == MAX_REASON);
    }

    #[test]
    fn only_who_asks_for_trailers_takes_them() {
        let asks = |value: &'static str| {
            takes_trailers(&HeaderMap::from_iter([(header::TE, HeaderValue::from_static(value))]))
        };
        assert!(asks("trailers") && asks("gzip, Trailers"));
        assert!(!asks("gzip") && !takes_trailers(&HeaderMap::new()));
    }
}
