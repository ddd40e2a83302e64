//! How much memory trees take on their way: alone in a process, whose peak is the kernel's own count.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use sandbar_core::{Archive, Error, ErrorKind, GuestPath, Result, SandboxId};
use sandbar_guest::{BoxError, EnvdClient, Failure, RequestBody, ResponseBody, Reuse, Transport};
use sandbar_wire::envd::{Channel, EndEvent, ProcessEvent, data_frame, end_frame, message_frame};

/// Most that a transfer may take, in bytes.
const BUDGET: u64 = 32 << 20;
/// Bytes of a chunk on the way.
const CHUNK: usize = 64 << 10;
/// Bytes of a tar block.
const BLOCK: usize = 512;

/// An agent that takes everything and keeps nothing.
#[derive(Debug)]
struct Sink {
    id: SandboxId,
    size: u64,
    taken: Mutex<u64>,
}

#[async_trait]
impl Transport for Sink {
    fn backend(&self) -> &'static str {
        "sink"
    }

    fn sandbox(&self) -> &SandboxId {
        &self.id
    }

    async fn send(
        &self,
        request: Request<RequestBody>,
        _: Reuse,
        _: Duration,
        _: &'static str,
    ) -> Result<Response<ResponseBody>> {
        let (head, mut body) = request.into_parts();
        let mut taken = 0;
        while let Some(frame) = body.frame().await {
            taken += frame.expect("a body").into_data().map_or(0, |bytes| bytes.len() as u64);
        }
        let answer = match (head.method, head.uri.path()) {
            (Method::GET, "/files") => {
                let chunks = self.size / CHUNK as u64;
                let chunk = Bytes::from(vec![7; CHUNK]);
                let body =
                    stream::iter(0..chunks).map(move |_| Ok::<_, BoxError>(Frame::data(chunk.clone())));
                ResponseBody::new(StreamBody::new(body))
            }
            (Method::POST, "/files") => {
                *self.taken.lock().unwrap() += taken;
                ResponseBody::new(Full::new(Bytes::from_static(b"[]")))
            }
            (Method::POST, "/process.Process/Start") => {
                let end = EndEvent { exited: true, status: "exit status 0".into(), ..EndEvent::default() };
                let said = data_frame(Channel::Stdout, self.size.to_string().as_bytes());
                let frames = [
                    message_frame(&ProcessEvent::Start { pid: 7 }),
                    said,
                    message_frame(&ProcessEvent::End(end)),
                    end_frame(None),
                ];
                ResponseBody::new(Full::new(Bytes::from(frames.concat())))
            }
            (method, path) => panic!("`{method} {path}` is not expected"),
        };
        Ok(Response::new(answer))
    }

    async fn lost(&self, operation: &'static str, failure: Failure) -> Error {
        Error::new(ErrorKind::Unavailable, operation, format!("{failure:?}"))
    }
}

/// The peak of this process' memory, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// A tar with one file of `size` bytes, as it comes.
fn tar(size: u64) -> impl futures::Stream<Item = Result<Bytes>> + Send {
    let mut header = tar::Header::new_ustar();
    header.set_path("file").unwrap();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_cksum();
    let chunk = Bytes::from(vec![7; CHUNK]);
    let head = stream::iter([Ok(Bytes::copy_from_slice(header.as_bytes()))]);
    let content = stream::iter(0..size / CHUNK as u64).map(move |_| Ok(chunk.clone()));
    head.chain(content).chain(stream::iter([Ok(Bytes::from(vec![0; 2 * BLOCK]))]))
}

#[tokio::test]
async fn a_large_tree_takes_little_memory_either_way() {
    // 2 GiB with `SANDBAR_SOAK=2048`; the peak does not grow with it.
    let mebibytes = std::env::var("SANDBAR_SOAK").ok().and_then(|size| size.parse().ok()).unwrap_or(256_u64);
    let size = mebibytes << 20;
    let sink =
        Arc::new(Sink { id: SandboxId::new("i0123456789abcdefghi").unwrap(), size, taken: Mutex::new(0) });
    let client = EnvdClient::new(sink.clone());
    let before = peak();
    let report = client.import(&GuestPath::new("/home/user/in").unwrap(), tar(size).boxed()).await.unwrap();
    assert_eq!((report.entries, report.bytes), (1, size));
    assert_eq!(*sink.taken.lock().unwrap(), size + 3 * BLOCK as u64);
    let exported = client.export(&GuestPath::new("/home/user/in").unwrap()).await.unwrap();
    let came =
        exported.try_fold(0_u64, |sum, bytes| async move { Ok(sum + bytes.len() as u64) }).await.unwrap();
    assert_eq!(came, size);
    let taken = peak() - before;
    assert!(taken < BUDGET, "it took {} MiB", taken >> 20);
}
