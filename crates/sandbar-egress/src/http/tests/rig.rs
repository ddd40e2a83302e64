use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use sandbar_core::{DecisionReason, Hostname, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::http::{HttpContext, HttpEvent, serve};
use crate::{DialError, Dialer, Ruling};

/// No exchange of a test takes so long.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A connection of a sandbox to `allowed.test:80`, and the host outside.
pub(super) struct Rig {
    outside: TcpListener,
    seen: Arc<Seen>,
    tasks: JoinSet<()>,
}

#[derive(Default)]
pub(super) struct Seen {
    pub(super) events: Mutex<Vec<HttpEvent>>,
    pub(super) dials: AtomicUsize,
    pub(super) denies: AtomicBool,
}

struct Loopback(std::net::SocketAddr, Arc<Seen>);

#[async_trait]
impl Dialer for Loopback {
    async fn dial(&self) -> Result<TcpStream, DialError> {
        self.1.dials.fetch_add(1, Ordering::SeqCst);
        TcpStream::connect(self.0).await.map_err(|cause| DialError::Unreachable(Some(self.0.ip()), cause))
    }
}

impl Rig {
    pub(super) async fn new() -> Self {
        let outside = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { outside, seen: Arc::default(), tasks: JoinSet::new() }
    }

    fn context(&self) -> HttpContext {
        let (judge, report) = (self.seen.clone(), self.seen.clone());
        HttpContext {
            name: Hostname::parse("allowed.test").unwrap(),
            port: 80,
            judge: Arc::new(move || {
                if judge.denies.load(Ordering::SeqCst) {
                    Ruling::denied(DecisionReason::NotAllowed, None)
                } else {
                    Ruling::allowed(DecisionReason::Rule, Some("allowed.test:80".into()))
                }
            }),
            dial: Arc::new(Loopback(self.outside.local_addr().unwrap(), self.seen.clone())),
            report: Arc::new(move |event| report.events.lock().unwrap().push(event)),
        }
    }

    /// A client's end of a connection that is served.
    pub(super) fn client(&mut self) -> DuplexStream {
        let (inside, served) = tokio::io::duplex(64 << 10);
        let context = self.context();
        self.tasks.spawn(async move { drop(serve(served, context).await) });
        inside
    }

    /// A port on the loopback where each connection is served.
    pub(super) async fn port(&mut self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let context = self.context();
        self.tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let context = context.clone();
                open.spawn(async move { drop(serve(stream, context).await) });
            }
        });
        port
    }

    pub(super) fn seen(&self) -> &Arc<Seen> {
        &self.seen
    }

    /// The next connection to the host outside.
    pub(super) async fn accept(&self) -> Peer<TcpStream> {
        Peer::new(timeout(PATIENCE, self.outside.accept()).await.expect("a connection in time").unwrap().0)
    }

    /// The decisions so far.
    pub(super) fn told(&self) -> Vec<(Verdict, DecisionReason)> {
        self.seen.events.lock().unwrap().iter().map(|event| (event.verdict, event.reason)).collect()
    }

    /// Sends these bytes and closes the sending half. What came back by the end of the connection.
    pub(super) async fn answer_to(&mut self, request: &[u8]) -> String {
        let mut client = Peer::new(self.client());
        client.write(request).await;
        client.rest().await
    }

    pub(super) fn dials(&self) -> usize {
        self.seen.dials.load(Ordering::SeqCst)
    }
}

/// One end of a connection, read by hand.
pub(super) struct Peer<S> {
    pub(super) stream: S,
    held: Vec<u8>,
}

impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin> Peer<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, held: Vec::new() }
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) {
        timeout(PATIENCE, self.stream.write_all(bytes)).await.expect("written in time").unwrap();
    }

    /// What comes up to `end` and with it.
    pub(super) async fn until(&mut self, end: &str) -> String {
        loop {
            let found = self.held.windows(end.len()).position(|window| window == end.as_bytes());
            if let Some(at) = found {
                let rest = self.held.split_off(at + end.len());
                return String::from_utf8(std::mem::replace(&mut self.held, rest)).unwrap();
            }
            let read = timeout(PATIENCE, self.stream.read_buf(&mut self.held)).await;
            let count = read.unwrap_or_else(|_| panic!("no {end:?} after {:?}", self.text())).unwrap();
            assert!(count > 0, "the end instead of {end:?} after {:?}", self.text());
        }
    }

    /// A head.
    pub(super) async fn head(&mut self) -> String {
        self.until("\r\n\r\n").await
    }

    /// All that comes before the end.
    pub(super) async fn rest(&mut self) -> String {
        let read = timeout(PATIENCE, self.stream.read_to_end(&mut self.held)).await;
        // A reset is an end, too.
        drop(read.unwrap_or_else(|_| panic!("no end after {:?}", self.text())));
        String::from_utf8(std::mem::take(&mut self.held)).unwrap()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.held).into_owned()
    }
}
