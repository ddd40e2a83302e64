//! An agent in a thread, and a small client for it.
#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod program;

use std::collections::VecDeque;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use sandbar_agent::config::{IdMode, Sudo};
use sandbar_agent::{AgentConfig, Listeners, Outcome, serve};
use sandbar_wire::envd::{
    Channel, EndEvent, EndStream, FrameDecoder, MAX_MESSAGE_BYTES, ProcessConfig, ProcessEvent, RpcError,
    StartRequest, decode_process_event, message_frame,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// No test waits longer for anything.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Agent {
    pub(crate) folder: tempfile::TempDir,
    thread: Option<std::thread::JoinHandle<std::io::Result<Outcome>>>,
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whom commands of `user` run as.
pub(crate) fn user_ids() -> (u32, u32) {
    if is_root() {
        (1000, 1000)
    } else {
        (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
    }
}

impl Agent {
    pub(crate) fn start() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut AgentConfig)) -> Self {
        let (folder, config, listeners) = prepare(change);
        let thread = std::thread::spawn(move || serve(config, listeners));
        Self { folder, thread: Some(thread) }
    }

    /// One that runs elsewhere, with its sockets in that folder.
    pub(crate) fn elsewhere(folder: tempfile::TempDir) -> Self {
        Self { folder, thread: None }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub(crate) fn home_path(&self, name: &str) -> PathBuf {
        self.home().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("agent.sock")
    }

    pub(crate) fn control(&self) -> OwnedFd {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(self.folder.path().join("ctl.sock")).unwrap()).unwrap();
        socket
    }

    pub(crate) fn wait(mut self) -> Outcome {
        let thread = self.thread.take().unwrap();
        eventually("the agent returns", || thread.is_finished());
        thread.join().unwrap().unwrap()
    }

    pub(crate) async fn request(&self, request: http::Request<Full<Bytes>>) -> http::Response<Incoming> {
        send(&self.socket(), request).await
    }

    pub(crate) async fn call(
        &self,
        method: &str,
        uri: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut builder = http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        let response = self.request(builder.body(Full::new(body.into())).unwrap()).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes);
        Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: body.map_err(|error| error.to_string()),
        }
    }

    pub(crate) async fn get(&self, uri: &str) -> Answer {
        self.call("GET", uri, &[], "").await
    }

    pub(crate) async fn unary<T: DeserializeOwned>(
        &self,
        method: &str,
        request: &impl Serialize,
    ) -> Result<T, RpcError> {
        let body = serde_json::to_vec(request).unwrap();
        let answer =
            self.call("POST", &format!("/{method}"), &[("content-type", "application/json")], body).await;
        let body = answer.body.unwrap();
        if answer.status == 200 {
            Ok(serde_json::from_slice(&body).unwrap())
        } else {
            Err(RpcError::from_response(answer.status, &body))
        }
    }

    pub(crate) async fn process<T: DeserializeOwned>(
        &self,
        method: &str,
        request: &impl Serialize,
    ) -> Result<T, RpcError> {
        self.unary(&format!("process.Process/{method}"), request).await
    }

    pub(crate) async fn files<T: DeserializeOwned>(
        &self,
        method: &str,
        request: &impl Serialize,
    ) -> Result<T, RpcError> {
        self.unary(&format!("filesystem.Filesystem/{method}"), request).await
    }

    pub(crate) async fn stream(
        &self,
        method: &str,
        request: &impl Serialize,
        headers: &[(&str, &str)],
    ) -> Stream {
        let frame = message_frame(request);
        let mut builder = http::Request::builder().method("POST").uri(format!("/{method}"));
        builder = builder.header("content-type", "application/connect+json");
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        let response = self.request(builder.body(Full::new(frame)).unwrap()).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/connect+json");
        Stream {
            body: response.into_body(),
            decoder: FrameDecoder::new(MAX_MESSAGE_BYTES),
            ready: VecDeque::new(),
            end: None,
        }
    }

    pub(crate) async fn start_process(
        &self,
        request: &StartRequest,
        headers: &[(&str, &str)],
    ) -> Result<Running, RpcError> {
        let mut stream = self.stream("process.Process/Start", request, headers).await;
        match stream.event().await? {
            Some(ProcessEvent::Start { pid }) => Ok(Running { pid, stream }),
            other => panic!("first event is {other:?}"),
        }
    }

    pub(crate) async fn shell(&self, script: &str) -> Running {
        self.start_process(&shell(script), &[]).await.unwrap()
    }

    pub(crate) async fn run(&self, script: &str) -> Output {
        self.shell(script).await.output().await.unwrap()
    }
}

/// A folder with sockets, users and a home, and a configuration for it.
pub(crate) fn prepare(change: impl FnOnce(&mut AgentConfig)) -> (tempfile::TempDir, AgentConfig, Listeners) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let at = |name: &str| folder.path().join(name);
    let (uid, gid) = user_ids();
    for name in ["etc", "home"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    let home = at("home");
    std::os::unix::fs::chown(&home, Some(uid), Some(gid)).unwrap();
    let other = format!("root:x:0:0::/root:/bin/sh\nuser:x:{uid}:{gid}::{}:/bin/bash\n", home.display());
    std::fs::write(at("etc/passwd"), other).unwrap();
    std::fs::write(at("etc/group"), format!("root:x:0:\nuser:x:{gid}:\nextra:x:4242:user\n")).unwrap();
    let mut config = AgentConfig::new("i1", "host");
    config.etc = at("etc");
    config.sudo_socket = None;
    if !is_root() {
        config.ids = IdMode::Single;
        config.sudo = Sudo::Denied { reason: "single id".into() };
    }
    change(&mut config);
    let agent = UnixListener::bind(at("agent.sock")).unwrap().into();
    let control = Some(packet_listener(&at("ctl.sock")));
    (folder, config, Listeners { agent, control, network: None })
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let control = self.control();
            let shutdown = br#"{"v":1,"op":"shutdown"}"#;
            if rustix::net::send(&control, shutdown, rustix::net::SendFlags::NOSIGNAL).is_ok() {
                let _ = thread.join();
            }
        }
    }
}

async fn send(socket: &Path, request: http::Request<Full<Bytes>>) -> http::Response<Incoming> {
    let stream = tokio::net::UnixStream::connect(socket).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(async move {
        let _ = connection.await;
    });
    sender.send_request(request).await.unwrap()
}

pub(crate) fn packet_listener(path: &Path) -> OwnedFd {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    listen(&socket, 16).unwrap();
    socket
}

pub(crate) fn shell(script: &str) -> StartRequest {
    let args = vec!["-c".to_owned(), script.to_owned()];
    let process = ProcessConfig { cmd: "/bin/bash".into(), args, ..ProcessConfig::default() };
    StartRequest { process, stdin: Some(false), ..StartRequest::default() }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Result<Bytes, String>,
}

impl Answer {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.body.as_ref().unwrap()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(self.bytes()).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(self.bytes()).unwrap()
    }
}

pub(crate) struct Stream {
    body: Incoming,
    decoder: FrameDecoder,
    ready: VecDeque<Bytes>,
    end: Option<EndStream>,
}

impl Stream {
    /// The next message; `None` after the end frame.
    pub(crate) async fn message(&mut self) -> Result<Option<Bytes>, RpcError> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Ok(Some(message));
            }
            if let Some(end) = &self.end {
                return end.error.clone().map_or(Ok(None), Err);
            }
            let frame = self.body.frame().await.expect("the stream has an end frame").unwrap();
            self.decoder.push(&frame.into_data().unwrap());
            while let Some(frame) = self.decoder.next_frame().unwrap() {
                if frame.is_end() {
                    self.end = Some(serde_json::from_slice(&frame.payload).unwrap());
                } else {
                    self.ready.push_back(frame.payload);
                }
            }
        }
    }

    pub(crate) async fn event(&mut self) -> Result<Option<ProcessEvent>, RpcError> {
        Ok(self.message().await?.map(|message| decode_process_event(&message).unwrap()))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) pty: Vec<u8>,
    pub(crate) end: EndEvent,
    pub(crate) keepalives: usize,
}

impl Output {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }
}

pub(crate) struct Running {
    pub(crate) pid: u32,
    pub(crate) stream: Stream,
}

impl Running {
    /// Reads until `wanted` is in what was printed so far.
    pub(crate) async fn until(&mut self, wanted: &str) -> String {
        let mut text = String::new();
        while !text.contains(wanted) {
            match self.stream.event().await.unwrap() {
                Some(ProcessEvent::Data { bytes, .. }) => text.push_str(&String::from_utf8_lossy(&bytes)),
                Some(ProcessEvent::Keepalive) => {}
                other => panic!("{other:?} before `{wanted}`, after `{text}`"),
            }
        }
        text
    }

    /// Everything up to the end.
    pub(crate) async fn output(mut self) -> Result<Output, RpcError> {
        let mut output = Output::default();
        let mut ended = false;
        while let Some(event) = self.stream.event().await? {
            assert!(!ended, "{event:?} after `end`");
            match event {
                ProcessEvent::Data { channel, bytes } => match channel {
                    Channel::Stdout => output.stdout.extend_from_slice(&bytes),
                    Channel::Stderr => output.stderr.extend_from_slice(&bytes),
                    Channel::Pty => output.pty.extend_from_slice(&bytes),
                },
                ProcessEvent::End(end) => {
                    output.end = end;
                    ended = true;
                }
                ProcessEvent::Keepalive => output.keepalives += 1,
                other => panic!("unexpected {other:?}"),
            }
        }
        assert!(ended, "the stream ended without `end`");
        Ok(output)
    }
}

pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LIMIT, test).await.expect("the test ends in time") })
}

/// Polls a condition.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Polls a condition without stopping the client's connections.
pub(crate) async fn eventually_async(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Processes whose command line contains a marker, zombies excluded.
pub(crate) fn with_marker(marker: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if pid != std::process::id() && String::from_utf8_lossy(&line).contains(marker) {
            found.push(pid);
        }
    }
    found
}
