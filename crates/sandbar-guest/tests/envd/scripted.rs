//! An agent that does what a test says, on a clock that a test turns.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use sandbar_core::{Error, ErrorKind, Result, SandboxId};
use sandbar_guest::{BoxError, EnvdVersion, Failure, RequestBody, ResponseBody, Reuse, Transport};
use sandbar_wire::envd::{
    Channel, EndEvent, FrameDecoder, ProcessEvent, StartRequest, data_frame, end_frame, message_frame,
};

/// What a started process says, and when.
pub(crate) type Says = BoxStream<'static, Bytes>;

/// What the agent does.
pub(crate) trait Does: Send + Sync {
    /// Starts a process.
    fn start(&self, request: &StartRequest) -> Says;

    /// Those that it still lists.
    fn list(&self) -> Vec<u32> {
        Vec::new()
    }
}

/// An agent, and what it was asked.
pub(crate) struct Scripted<D> {
    id: SandboxId,
    version: EnvdVersion,
    does: D,
    /// Each request's path with its body.
    pub(crate) asked: Mutex<Vec<(String, Bytes)>>,
    /// Streams that are open.
    pub(crate) open: Arc<()>,
}

impl<D> std::fmt::Debug for Scripted<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scripted")
    }
}

impl<D: Does> Scripted<D> {
    pub(crate) fn new(does: D) -> Arc<Self> {
        Self::of_version(does, EnvdVersion::LATEST)
    }

    pub(crate) fn of_version(does: D, version: EnvdVersion) -> Arc<Self> {
        let id = SandboxId::new("i0123456789abcdefghi").unwrap();
        Arc::new(Self { id, version, does, asked: Mutex::default(), open: Arc::new(()) })
    }

    /// How often it was asked for `path`.
    pub(crate) fn count(&self, path: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|(asked, _)| asked == path).count()
    }

    /// How many answers are being read.
    pub(crate) fn streams(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }
}

#[async_trait]
impl<D: Does + 'static> Transport for Scripted<D> {
    fn backend(&self) -> &'static str {
        "scripted"
    }

    fn sandbox(&self) -> &SandboxId {
        &self.id
    }

    async fn send(
        &self,
        request: Request<RequestBody>,
        _: Reuse,
        _: Duration,
        operation: &'static str,
    ) -> Result<Response<ResponseBody>> {
        let path = request.uri().path().to_owned();
        let body = match request.into_body().collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => return Err(Error::new(ErrorKind::Unavailable, operation, "the body broke off")),
        };
        self.asked.lock().unwrap().push((path.clone(), body.clone()));
        let answer = match path.as_str() {
            "/process.Process/Start" => {
                let mut decoder = FrameDecoder::new(1 << 20);
                decoder.push(&body);
                let frame = decoder.next_frame().unwrap().unwrap();
                let says = self.does.start(&serde_json::from_slice(&frame.payload).unwrap());
                let open = Arc::clone(&self.open);
                let frames = says.map(move |bytes| {
                    let _held = &open;
                    Ok::<_, BoxError>(Frame::data(bytes))
                });
                ResponseBody::new(StreamBody::new(frames))
            }
            "/process.Process/List" => {
                let processes: Vec<_> = self
                    .does
                    .list()
                    .into_iter()
                    .map(|pid| {
                        BTreeMap::from([
                            ("pid", serde_json::json!(pid)),
                            ("config", serde_json::json!({"cmd": "x"})),
                        ])
                    })
                    .collect();
                let text = serde_json::to_vec(&serde_json::json!({ "processes": processes })).unwrap();
                ResponseBody::new(http_body_util::Full::new(Bytes::from(text)))
            }
            "/files" => ResponseBody::new(http_body_util::Full::new(Bytes::from_static(b"[]"))),
            other => panic!("`{other}` is not in the script"),
        };
        let mut response = Response::new(answer);
        *response.status_mut() = StatusCode::OK;
        Ok(response)
    }

    async fn lost(&self, operation: &'static str, failure: Failure) -> Error {
        Error::new(ErrorKind::Unavailable, operation, format!("{failure:?}"))
    }

    async fn envd_version(&self, _: &'static str) -> Result<EnvdVersion> {
        Ok(self.version)
    }
}

/// The first message of a process.
pub(crate) fn started(pid: u32) -> Bytes {
    message_frame(&ProcessEvent::Start { pid })
}

/// Its output.
pub(crate) fn out(text: &str) -> Bytes {
    data_frame(Channel::Stdout, text.as_bytes())
}

/// Its errors.
pub(crate) fn err(text: &str) -> Bytes {
    data_frame(Channel::Stderr, text.as_bytes())
}

/// Its end by itself, as `envd` tells it.
pub(crate) fn exited(code: i32) -> Vec<Bytes> {
    let status = format!("exit status {code}");
    let error = (code != 0).then(|| status.clone());
    let end = EndEvent { exit_code: code, exited: true, status, error, ..EndEvent::default() };
    vec![message_frame(&ProcessEvent::End(end)), end_frame(None)]
}

/// All at once, then the end of the stream.
pub(crate) fn at_once(frames: Vec<Bytes>) -> Says {
    stream::iter(frames).boxed()
}

/// All at once, and then nothing, for ever.
pub(crate) fn held(frames: Vec<Bytes>) -> Says {
    stream::iter(frames).chain(stream::pending()).boxed()
}

/// Later, on the test's clock.
pub(crate) fn after(wait: Duration, frames: Vec<Bytes>) -> Says {
    stream::once(tokio::time::sleep(wait)).flat_map(move |()| stream::iter(frames.clone())).boxed()
}

/// Whether a start is one of the client's own looks, by its script.
pub(crate) fn is_look(request: &StartRequest) -> bool {
    request.process.args.get(1).is_some_and(|script| script.contains("/stat; then"))
}

/// Whether it ends a tree.
pub(crate) fn is_kill(request: &StartRequest) -> bool {
    request.process.args.get(1).is_some_and(|script| script.contains("state_of"))
}
