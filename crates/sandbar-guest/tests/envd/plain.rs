//! Sandbar's agent as a plain `envd`: its extensions are taken off what it answers, and what it is asked may have none.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame as BodyFrame, Incoming};
use hyper_util::rt::TokioIo;
use sandbar_core::{Error, ErrorKind, Result, Sandbox, SandboxId};
use sandbar_guest::{Failure, RequestBody, ResponseBody, Reuse, Transport};
use sandbar_wire::envd::{FrameDecoder, HEADER_BYTES, STREAM_CONTENT_TYPE};
use tokio_util::compat::FuturesAsyncReadCompatExt;

/// Sandbar's own words, which no other agent says.
const EXTENSIONS: &[&str] = &["reason", "signal", "cause", "nameB64", "pathB64", "newName", "newNameB64"];
/// What every `envd` serves.
const ENDPOINTS: &[&str] = &[
    "/health",
    "/files",
    "/process.Process/List",
    "/process.Process/Connect",
    "/process.Process/Start",
    "/process.Process/Update",
    "/process.Process/StreamInput",
    "/process.Process/SendInput",
    "/process.Process/CloseStdin",
    "/filesystem.Filesystem/Stat",
    "/filesystem.Filesystem/MakeDir",
    "/filesystem.Filesystem/Move",
    "/filesystem.Filesystem/ListDir",
    "/filesystem.Filesystem/Remove",
    "/filesystem.Filesystem/WatchDir",
];
/// Largest message, in bytes.
const MOST: usize = 64 << 20;

/// A connection for each request, through the sandbox' byte tunnel.
#[derive(Debug)]
pub(crate) struct Plain(pub(crate) Arc<dyn Sandbox>);

#[async_trait]
impl Transport for Plain {
    fn backend(&self) -> &'static str {
        "plain"
    }

    fn sandbox(&self) -> &SandboxId {
        self.0.id()
    }

    async fn send(
        &self,
        mut request: Request<RequestBody>,
        _: Reuse,
        bound: Duration,
        operation: &'static str,
    ) -> Result<Response<ResponseBody>> {
        let path = request.uri().path().to_owned();
        assert!(ENDPOINTS.contains(&path.as_str()), "`{path}` is no endpoint of envd's");
        request.headers_mut().insert("host", "plain".parse().unwrap());
        let sending = async {
            let guest = self
                .0
                .guest()
                .expect("a tunnel")
                .connect()
                .await
                .map_err(|error| error.with_operation(operation))?;
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(guest.compat()))
                    .await
                    .map_err(lost_as(operation))?;
            tokio::spawn(async move {
                let _ = connection.await;
            });
            let response = sender.send_request(request).await.map_err(lost_as(operation))?;
            Ok(stripped(response).await)
        };
        tokio::time::timeout(bound, sending)
            .await
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, operation, "no answer in time")))
    }

    async fn lost(&self, operation: &'static str, failure: Failure) -> Error {
        match self.0.record().await {
            Ok(record) if record.state == sandbar_core::State::Running => {
                Error::new(ErrorKind::Unavailable, operation, format!("lost: {failure:?}"))
            }
            Ok(record) => Error::conflict(operation, record.state, "it does not run"),
            Err(error) => error.with_operation(operation),
        }
    }
}

fn lost_as(operation: &'static str) -> impl Fn(hyper::Error) -> Error {
    move |cause| Error::new(ErrorKind::Unavailable, operation, format!("lost: {cause:?}"))
}

async fn stripped(response: Response<Incoming>) -> Response<ResponseBody> {
    let kind = response.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
    let (mut head, body) = response.into_parts();
    head.headers.remove("content-length");
    let body = match kind.as_deref() {
        Some(STREAM_CONTENT_TYPE) => ResponseBody::new(StreamBody::new(stream::unfold(
            (body, FrameDecoder::new(MOST)),
            |(mut body, mut decoder)| async move {
                loop {
                    if let Some(frame) = decoder.next_frame().expect("frames") {
                        let payload = without_extensions(&frame.payload);
                        let mut bytes = vec![frame.flags];
                        bytes.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_be_bytes());
                        assert_eq!(bytes.len(), HEADER_BYTES);
                        bytes.extend_from_slice(&payload);
                        return Some((Ok(BodyFrame::data(Bytes::from(bytes))), (body, decoder)));
                    }
                    match body.frame().await? {
                        Ok(frame) => decoder.push(&frame.into_data().expect("data")),
                        Err(cause) => return Some((Err(cause), (body, decoder))),
                    }
                }
            },
        ))),
        Some("application/json") => {
            let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            ResponseBody::new(http_body_util::Full::new(Bytes::from(without_extensions(&bytes))))
        }
        _ => {
            if let Some(length) = body_length(&body) {
                head.headers.insert("content-length", length.into());
            }
            ResponseBody::new(body)
        }
    };
    Response::from_parts(head, body)
}

fn body_length(body: &Incoming) -> Option<u64> {
    hyper::body::Body::size_hint(body).exact()
}

fn without_extensions(text: &[u8]) -> Vec<u8> {
    fn strip(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(map) => {
                in_gos_words(map);
                map.retain(|key, _| !EXTENSIONS.contains(&key.as_str()));
                map.values_mut().for_each(strip);
            }
            serde_json::Value::Array(list) => list.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let Ok(mut value) = serde_json::from_slice(text) else { return text.to_vec() };
    strip(&mut value);
    serde_json::to_vec(&value).unwrap()
}

/// What our agent says by a reason, `envd` says in the words of Go's libraries.
fn in_gos_words(error: &mut serde_json::Map<String, serde_json::Value>) {
    let (Some(reason), Some(message)) = (error.get("reason"), error.get("message")) else { return };
    let message = message.as_str().unwrap_or_default();
    let told = match reason.as_str() {
        Some("program_not_found") => format!("exec: \"{message}\": executable file not found in $PATH"),
        Some("program_not_executable") => format!("fork/exec {message}: permission denied"),
        Some("process_limit") => format!("fork/exec {message}: resource temporarily unavailable"),
        Some("bad_cwd") => format!("cwd '{message}' does not exist"),
        _ => return,
    };
    error.insert("message".to_owned(), told.into());
}
