//! Trees in and out, in pieces, and what is left of them inside: nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use http::{Request, Response};
use http_body_util::BodyExt;
use sandbar_core::{
    Archive, Command, Commands, CreateOptions, Error, ErrorKind, FilesExt, GuestPath, Result, Sandbox,
    SandboxId, SandboxProvider,
};
use sandbar_guest::{EnvdClient, Failure, RequestBody, ResponseBody, Reuse, Transport, whole};

use crate::conformance::place;
use crate::plain::Plain;

/// Largest piece that may be sent, in bytes.
const MOST: usize = 8 << 20;

/// The way to the agent, which counts and can damage what is uploaded.
#[derive(Debug)]
struct Meddling {
    inner: Plain,
    damages: AtomicBool,
    pieces: AtomicUsize,
    largest: AtomicUsize,
}

#[async_trait]
impl Transport for Meddling {
    fn backend(&self) -> &'static str {
        "plain"
    }

    fn sandbox(&self) -> &SandboxId {
        self.inner.sandbox()
    }

    async fn send(
        &self,
        request: Request<RequestBody>,
        reuse: Reuse,
        bound: Duration,
        operation: &'static str,
    ) -> Result<Response<ResponseBody>> {
        let is_piece = request.uri().query().is_some_and(|query| query.contains("/piece-"));
        if !is_piece {
            return self.inner.send(request, reuse, bound, operation).await;
        }
        let (head, body) = request.into_parts();
        let mut bytes = body.collect().await.expect("a piece is whole").to_bytes().to_vec();
        self.pieces.fetch_add(1, Ordering::SeqCst);
        self.largest.fetch_max(bytes.len(), Ordering::SeqCst);
        if self.damages.load(Ordering::SeqCst) {
            let last = bytes.len() / 2;
            bytes[last] ^= 1;
        }
        self.inner.send(Request::from_parts(head, whole(bytes)), reuse, bound, operation).await
    }

    async fn lost(&self, operation: &'static str, failure: Failure) -> Error {
        self.inner.lost(operation, failure).await
    }
}

struct Bed {
    _folder: tempfile::TempDir,
    sandbox: Arc<dyn Sandbox>,
    way: Arc<Meddling>,
    client: EnvdClient,
}

impl Bed {
    async fn new() -> Option<Self> {
        let (folder, provider) = place()?;
        let sandbox = provider.create(CreateOptions::new()).await.expect("a sandbox");
        let way = Arc::new(Meddling {
            inner: Plain(Arc::clone(&sandbox)),
            damages: AtomicBool::new(false),
            pieces: AtomicUsize::new(0),
            largest: AtomicUsize::new(0),
        });
        let client = EnvdClient::new(way.clone());
        Some(Self { _folder: folder, sandbox, way, client })
    }

    async fn sh(&self, script: &str) -> String {
        let output = self.client.run(&Command::shell(script)).await.expect("a command");
        assert!(output.status.is_success(), "{script}: {}", output.stderr_lossy());
        output.stdout_lossy().into_owned()
    }

    /// What is in `/tmp` of ours.
    async fn left(&self) -> String {
        self.sh("ls -d /tmp/.sandbar-* /home/user/.sandbar-* /home/user/*/.sandbar-* 2>/dev/null; :").await
    }

    async fn eventually_nothing_is_left(&self) {
        let end = Instant::now() + Duration::from_secs(20);
        while !self.left().await.is_empty() {
            assert!(Instant::now() < end, "still there: {}", self.left().await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn end(self) {
        self.sandbox.destroy().await.expect("it is destroyed");
    }
}

fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o640);
        builder.append_data(&mut header, name, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

fn at(path: &str) -> GuestPath {
    GuestPath::new(path).unwrap()
}

fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

#[tokio::test]
async fn any_chunks_arrive_in_pieces_and_whole() {
    let Some(bed) = Bed::new().await else { return };
    let content = noise(18 << 20);
    let whole = Bytes::from(tar(&[("d/big", &content), ("d/small", b"x")]));
    // One chunk that is larger than a piece, and many that are smaller, some of them empty.
    let some = whole.len() / 3;
    let mut chunks = vec![whole.slice(..some), Bytes::new()];
    let mut rest = whole.slice(some..);
    while !rest.is_empty() {
        chunks.push(rest.split_to(rest.len().min(100_001)));
    }
    let body = stream::iter(chunks.into_iter().map(Ok)).boxed();
    let report = bed.client.import(&at("/home/user/in"), body).await.unwrap();
    assert_eq!((report.entries, report.bytes), (2, content.len() as u64 + 1));
    assert!(bed.way.pieces.load(Ordering::SeqCst) >= 3);
    assert!(bed.way.largest.load(Ordering::SeqCst) <= MOST);
    assert_eq!(bed.left().await, "");
    assert_eq!(bed.sh("stat -c %a:%U /home/user/in/d/big").await, "640:user\n");
    // And out again, whole.
    let out: Vec<Bytes> =
        bed.client.export(&at("/home/user/in/d")).await.unwrap().try_collect().await.unwrap();
    let out = out.concat();
    let mut archive = tar::Archive::new(&out[..]);
    let mut found = 0;
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().into_owned();
        assert!(path.starts_with("d"), "{path:?}");
        if path.ends_with("big") {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
            assert!(bytes == content, "it came back as another one");
            found += 1;
        }
    }
    assert_eq!(found, 1);
    bed.eventually_nothing_is_left().await;
    bed.end().await;
}

#[tokio::test]
async fn what_arrives_damaged_is_not_unpacked() {
    let Some(bed) = Bed::new().await else { return };
    bed.sh("mkdir -p /home/user/in && echo before >/home/user/in/one").await;
    bed.way.damages.store(true, Ordering::SeqCst);
    let body = stream::iter([Ok(Bytes::from(tar(&[("one", &noise(3000)), ("two", b"x")])))]).boxed();
    let error = bed.client.import(&at("/home/user/in"), body).await.unwrap_err();
    assert!(error.message().contains("what arrived inside is not what was sent"), "{error}");
    assert_eq!(bed.sh("cd /home/user/in && ls -A && cat one").await, "one\nbefore\n");
    assert_eq!(bed.left().await, "");
    bed.end().await;
}

#[tokio::test]
async fn what_is_in_the_way_is_seen_before_anything_moves() {
    let Some(bed) = Bed::new().await else { return };
    bed.sh("cd /home/user && mkdir -p in/kept in/a && echo before >in/a/f && echo before >in/b").await;
    let members: &[(&str, &[u8])] =
        &[("a/f", b"after"), ("b", b"after"), ("kept", b"a file where a folder is")];
    let body = stream::iter([Ok(Bytes::from(tar(members)))]).boxed();
    let error = bed.client.import(&at("/home/user/in"), body).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(bed.sh("cd /home/user/in && cat a/f b && ls -A").await, "before\nbefore\na\nb\nkept\n");
    assert_eq!(bed.left().await, "");
    bed.end().await;
}

#[tokio::test]
async fn a_move_that_fails_is_taken_back() {
    let Some(bed) = Bed::new().await else { return };
    // The second folder may not be written to: what goes there can't be replaced.
    bed.sh(
        "cd /home/user && mkdir -p in/a in/b && echo before >in/a/f && echo before >in/b/f && chmod 555 in/b",
    )
    .await;
    let members: &[(&str, &[u8])] = &[("a/f", b"after"), ("a/new", b"new"), ("b/f", b"after")];
    let body = stream::iter([Ok(Bytes::from(tar(members)))]).boxed();
    let error = bed.client.import(&at("/home/user/in"), body).await.unwrap_err();
    assert!(error.message().contains("/home/user/in/b/f can't be replaced"), "{error}");
    assert_eq!(bed.sh("cd /home/user/in && cat a/f b/f && ls a").await, "before\nbefore\nf\n");
    assert_eq!(bed.left().await, "");
    bed.end().await;
}

#[tokio::test]
async fn names_that_a_shell_could_take_for_something_else_arrive() {
    let Some(bed) = Bed::new().await else { return };
    let names =
        ["a b", "a\nb", "'q'", "$(id)", "*", "\\n", ".hidden", "..odd", "d/-x", "ü", "[a]", "trailing "];
    let members: Vec<(&str, &[u8])> = names.iter().map(|name| (*name, name.as_bytes())).collect();
    let whole = Bytes::from(tar(&members));
    bed.sh("mkdir -p '/home/user/o dd/d' && echo before >'/home/user/o dd/*' && ln -s nowhere '/home/user/o dd/ü'").await;
    // Into a folder that is there, and into one that is not.
    for into in ["/home/user/o dd", "/home/user/new/o dd"] {
        let body = stream::iter([Ok(whole.clone())]).boxed();
        bed.client.import(&at(into), body).await.unwrap();
        for name in names {
            let file = at(into).join(name).unwrap();
            assert_eq!(bed.client.read(&file).await.unwrap(), name.as_bytes(), "{file}");
        }
    }
    assert_eq!(bed.left().await, "");
    bed.end().await;
}

#[tokio::test]
async fn one_that_is_given_up_leaves_nothing() {
    let Some(bed) = Bed::new().await else { return };
    let whole = Bytes::from(tar(&[("big", &noise(12 << 20))]));
    let body = stream::iter([Ok(whole.slice(..10 << 20))]).chain(stream::pending()).boxed();
    {
        let into = at("/home/user/in");
        let importing = bed.client.import(&into, body);
        tokio::pin!(importing);
        let end = Instant::now() + Duration::from_secs(30);
        while bed.way.pieces.load(Ordering::SeqCst) < 2 {
            assert!(Instant::now() < end, "no piece was sent");
            tokio::select! {
                ended = &mut importing => panic!("it ended: {ended:?}"),
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
            }
        }
    }
    bed.eventually_nothing_is_left().await;
    let export = at("/home/user");
    bed.client.write(&at("/home/user/f"), "x".into()).await.unwrap();
    drop(bed.client.export(&export));
    let exported = bed.client.export(&export).await.unwrap();
    assert_eq!(bed.left().await, "", "the packed tree still has a name");
    drop(exported);
    bed.eventually_nothing_is_left().await;
    bed.end().await;
}
