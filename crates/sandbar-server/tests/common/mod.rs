//! A server over the local backend in a folder of its own, and a small client.
#![allow(dead_code, reason = "each test uses what it needs of it")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use sandbar::{GetOptions, MemoryProvider, Sandbox, SandboxId, SandboxProvider};
use sandbar_server::{DefaultEgress, KeyStore, Limits, Server, ServerConfig};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longest time that anything may take which a test waits for: a busy machine takes long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server that answers.
pub(crate) struct Rig {
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
    pub(crate) provider: Arc<dyn SandboxProvider>,
    folder: tempfile::TempDir,
    running: Option<(oneshot::Sender<()>, JoinHandle<sandbar::Result<()>>)>,
}

impl Rig {
    /// Over the local backend.
    pub(crate) async fn local() -> Self {
        Self::local_with(|_, _| {}).await
    }

    /// The same, with other settings; the folder is for their files.
    pub(crate) async fn local_with(change: impl FnOnce(&Path, &mut ServerConfig)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("local:{}", folder.path().join("home").display());
        let provider = sandbar::connect(&url).expect("the local backend opens");
        Self::over(folder, provider, change).await
    }

    /// Over the reference backend, which has no processes of its own.
    pub(crate) async fn memory() -> Self {
        Self::memory_with(|_| {}).await
    }

    /// The same, with other settings.
    pub(crate) async fn memory_with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self::over(folder, Arc::new(MemoryProvider::new()), |_, config| change(config)).await
    }

    /// Over another backend.
    pub(crate) async fn over(
        folder: tempfile::TempDir,
        provider: Arc<dyn SandboxProvider>,
        change: impl FnOnce(&Path, &mut ServerConfig),
    ) -> Self {
        let mut config = config(folder.path());
        change(folder.path(), &mut config);
        let key = KeyStore::open(&config.data).expect("the store opens").create("test", None).await;
        let key = key.expect("a key").text;
        let server = Server::bind(config, Arc::clone(&provider)).await.expect("the server binds");
        let address = server.address();
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self { address, key, provider, folder, running: Some((stop, running)) }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A key of another tenant.
    pub(crate) async fn other_key(&self) -> String {
        let keys = KeyStore::open(&self.folder.path().join("data")).expect("the store opens");
        keys.create("other", None).await.expect("a key").text
    }

    /// Asks the server once, on a connection of its own.
    pub(crate) async fn ask(
        &self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Reply {
        ask(self.address, method, target, headers, body.into()).await
    }

    /// Asks the control plane, with the key.
    pub(crate) async fn control(&self, method: Method, target: &str, body: Value) -> Reply {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [("x-api-key", self.key.as_str()), ("content-type", "application/json")];
        self.ask(method, target, &headers, body).await
    }

    /// Makes a sandbox as the SDKs do.
    pub(crate) async fn create(&self, body: Value) -> Made {
        let reply = self.control(Method::POST, "/v2/sandboxes", body).await;
        assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.text());
        Made::of(&reply.json())
    }

    pub(crate) async fn sandbox(&self, id: &str) -> Arc<dyn Sandbox> {
        let id = SandboxId::new(id).expect("an id");
        let found = self.provider.get_opts(&id, GetOptions::default()).await.expect("a look");
        found.expect("the sandbox is there")
    }

    /// Stops the server, and waits for that.
    pub(crate) async fn stop(&mut self) {
        if let Some((stop, running)) = self.running.take() {
            let _ = stop.send(());
            running.await.expect("the server ends").expect("in good order");
        }
    }
}

impl Drop for Rig {
    /// Nothing is left, however the test ended.
    fn drop(&mut self) {
        let home = self.folder.path().join("home");
        if let (true, Some(helper)) = (home.exists(), std::env::var_os("SANDBAR_HELPER")) {
            let url = format!("local:{}", home.display());
            let sandbar =
                |args: &[&str]| Command::new(&helper).args(["--provider", &url]).args(args).output();
            let listed = sandbar(&["ls", "--json"]).map(|output| output.stdout).unwrap_or_default();
            let records: Vec<Value> = serde_json::from_slice(&listed).unwrap_or_default();
            for id in records.iter().filter_map(|record| record["id"].as_str()) {
                let _ = sandbar(&["destroy", id]);
            }
        }
    }
}

/// Settings of a test: nothing that needs the world outside.
pub(crate) fn config(folder: &Path) -> ServerConfig {
    ServerConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        domain: None,
        tls: None,
        data: folder.join("data"),
        default_egress: DefaultEgress::None,
        limits: Limits::default(),
        public_url: None,
        metrics_listen: None,
        head_limit: sandbar_server::DEFAULT_HEAD_LIMIT,
        code_interpreter: sandbar_server::CodeInterpreter::Off,
    }
}

/// What creating a sandbox answers.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) id: String,
    pub(crate) token: String,
    pub(crate) traffic: String,
}

impl Made {
    pub(crate) fn of(answer: &Value) -> Self {
        let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        Self { id: text("sandboxID"), token: text("envdAccessToken"), traffic: text("trafficAccessToken") }
    }

    /// Headers of a request for its guest.
    pub(crate) fn guest(&self) -> [(&str, &str); 3] {
        [
            ("e2b-sandbox-id", self.id.as_str()),
            ("e2b-sandbox-port", "49983"),
            ("x-access-token", self.token.as_str()),
        ]
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }
}

/// Asks once, on a connection of its own.
pub(crate) async fn ask(
    address: SocketAddr,
    method: Method,
    target: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> Reply {
    let answered = async {
        let stream = TcpStream::connect(address).await.expect("the server listens");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("a connection");
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(target);
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request = request.header("host", address.to_string());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body)).expect("a request");
        let response = sender.send_request(request).await.expect("an answer");
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("a whole body").to_bytes();
        Reply { status: parts.status, headers: parts.headers, body }
    };
    tokio::time::timeout(PATIENCE, answered).await.expect("the answer comes in time")
}
