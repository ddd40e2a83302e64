//! The guest's own API passes as it is; who may is the server's to say.

use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use sandbar_wire::envd::{Frame, FrameDecoder, MAX_MESSAGE_BYTES, message_frame};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::common::{Made, PATIENCE, Rig};

/// A stream of the guest's, read frame by frame.
pub(crate) struct Stream {
    body: hyper::body::Incoming,
    decoder: FrameDecoder,
    pub(crate) status: StatusCode,
    _sender: hyper::client::conn::http1::SendRequest<Full<bytes::Bytes>>,
}

impl Stream {
    pub(crate) async fn open(rig: &Rig, sandbox: &Made, method: &str, message: &Value) -> Self {
        Self::open_with(rig, sandbox, method, message, &[]).await
    }

    /// The same, with more headers.
    async fn open_with(
        rig: &Rig,
        sandbox: &Made,
        method: &str,
        message: &Value,
        more: &[(&str, &str)],
    ) -> Self {
        let stream = TcpStream::connect(rig.address).await.expect("the server listens");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("a connection");
        tokio::spawn(connection);
        let mut request = http::Request::builder()
            .method(Method::POST)
            .uri(method)
            .header("host", rig.address.to_string())
            .header("content-type", "application/connect+json")
            .header("connect-protocol-version", "1");
        for (name, value) in sandbox.guest().iter().chain(more) {
            request = request.header(*name, *value);
        }
        let frame = message_frame(message);
        let response = sender.send_request(request.body(Full::new(frame)).expect("a request"));
        let response = tokio::time::timeout(PATIENCE, response).await.expect("in time").expect("a head");
        let status = response.status();
        Self {
            body: response.into_body(),
            decoder: FrameDecoder::new(MAX_MESSAGE_BYTES),
            status,
            _sender: sender,
        }
    }

    /// Runs a shell command.
    pub(crate) async fn start(rig: &Rig, sandbox: &Made, script: &str) -> Self {
        let message = json!({"process": {"cmd": "/bin/sh", "args": ["-c", script]}, "stdin": false});
        Self::open(rig, sandbox, "/process.Process/Start", &message).await
    }

    /// The next message; `None` is the proper end, and an error one that was broken off.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, String> {
        loop {
            if let Some(frame) = self.decoder.next_frame().map_err(|e| e.to_string())? {
                return Ok(message(&frame));
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("in time");
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.decoder.push(&data);
                    }
                }
                Some(Err(error)) => return Err(error.to_string()),
                None => return Err("the body ended without an end frame".to_owned()),
            }
        }
    }

    /// All of it to its proper end: what was said, and the exit code.
    pub(crate) async fn finish(&mut self) -> (Vec<u8>, Value) {
        use base64::Engine as _;
        let (mut output, mut end) = (Vec::new(), Value::Null);
        while let Some(message) = self.next().await.expect("the stream goes on") {
            let event = &message["event"];
            for name in ["stdout", "stderr"] {
                if let Some(text) = event["data"][name].as_str() {
                    output.extend(base64::engine::general_purpose::STANDARD.decode(text).expect("base64"));
                }
            }
            if !event["end"].is_null() {
                end = event["end"].clone();
            }
        }
        (output, end)
    }
}

fn message(frame: &Frame) -> Option<Value> {
    (!frame.is_end()).then(|| serde_json::from_slice(&frame.payload).expect("a message is JSON"))
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_for_a_guest_pass_as_they_are() {
    let rig = Rig::local().await;
    let sandbox = rig.create(json!({"templateID": "base"})).await;
    let guest = sandbox.guest();

    let health = rig.ask(Method::GET, "/health", &guest, "").await;
    assert_eq!(health.status, StatusCode::NO_CONTENT, "{}", health.text());
    assert_eq!(rig.ask(Method::GET, "/health", &[], "").await.status, StatusCode::OK, "the server's own");

    // Bytes of any kind, and a size above every buffer on the way.
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let headers = [&guest[..], &[("content-type", "application/octet-stream")]].concat();
    let written = rig.ask(Method::POST, "/files?path=/tmp/a.bin", &headers, bytes.clone()).await;
    assert_eq!(written.status, StatusCode::OK, "{}", written.text());
    let read = rig.ask(Method::GET, "/files?path=/tmp/a.bin", &guest, "").await;
    assert!(read.status == StatusCode::OK && read.body == bytes);
    let part = [&guest[..], &[("range", "bytes=10-19")]].concat();
    let part = rig.ask(Method::GET, "/files?path=/tmp/a.bin", &part, "").await;
    assert_eq!((part.status, &part.body[..]), (StatusCode::PARTIAL_CONTENT, &bytes[10..20]));
    // Bug 18: a file whose size is not known beforehand.
    let identity = [&guest[..], &[("accept-encoding", "identity")]].concat();
    let version = rig.ask(Method::GET, "/files?path=/proc/version", &identity, "").await;
    assert!(version.text().contains("Linux"), "{}", version.text());

    // A stream in one piece, and one that is long.
    let mut stream = Stream::start(&rig, &sandbox, "echo hi; exit 3").await;
    let (output, end) = stream.finish().await;
    assert_eq!((&output[..], &end["exitCode"]), (&b"hi\n"[..], &json!(3)));
    let mut stream = Stream::start(&rig, &sandbox, "seq 1 200000").await;
    let (output, _) = stream.finish().await;
    assert!(output.ends_with(b"\n200000\n"), "the last line is there (bug 7)");
    // An error of the guest's is the guest's.
    let json_type = [&guest[..], &[("content-type", "application/json")]].concat();
    let signal = r#"{"process":{"pid":99999},"signal":"SIGNAL_SIGKILL"}"#;
    let missing = rig.ask(Method::POST, "/process.Process/SendSignal", &json_type, signal).await;
    assert_eq!((missing.status, &missing.json()["code"]), (StatusCode::NOT_FOUND, &json!("not_found")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secure_guest_asks_for_its_token() {
    let rig = Rig::local().await;
    let sandbox = rig.create(json!({"templateID": "base"})).await;
    let other = rig.create(json!({"templateID": "base"})).await;
    let without = &sandbox.guest()[..2];
    let with = |token| [without, &[("x-access-token", token)]].concat();
    for (path, method) in [
        ("/envs", Method::GET),
        ("/metrics", Method::GET),
        ("/process.Process/List", Method::POST),
        ("/filesystem.Filesystem/Stat", Method::POST),
        ("/files/compose", Method::POST),
    ] {
        for token in
            [None, Some(""), Some(other.token.as_str()), Some(rig.key.as_str()), Some(other.traffic.as_str())]
        {
            let headers = token.map_or_else(|| without.to_vec(), with);
            let reply = rig.ask(method.clone(), path, &headers, "{}").await;
            assert_eq!(reply.status, StatusCode::UNAUTHORIZED, "{path} {token:?}");
            let body = reply.json();
            assert_eq!(body["code"], 401);
            assert!(body["message"].as_str().unwrap().starts_with("unauthorized access"), "{body}");
        }
    }
    assert_eq!(rig.ask(Method::GET, "/envs", &with(&sandbox.token), "").await.status, StatusCode::OK);
    assert_eq!(rig.ask(Method::GET, "/health", without, "").await.status, StatusCode::NO_CONTENT);
    // A file asks for one of both.
    let file = rig.ask(Method::GET, "/files?path=/etc/hostname", without, "").await;
    assert_eq!(file.json(), json!({"code": 401, "message": "missing signature query parameter"}));
    let file = rig.ask(Method::GET, "/files?path=/etc/hostname", &with(&other.token), "").await;
    assert_eq!(file.status, StatusCode::UNAUTHORIZED);
    // What is for whoever runs it is for nobody else, not even with the token.
    for path in
        ["/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade", "/sandbar/archive"]
    {
        let reply = rig.ask(Method::POST, path, &with(&sandbox.token), "{}").await;
        assert_eq!(reply.status, StatusCode::NOT_FOUND, "{path}");
        assert_eq!((&reply.json()["path"], &reply.json()["code"]), (&json!(path), &json!(404)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_there_is_told_in_the_words_that_sdks_know() {
    let rig = Rig::local().await;
    let sandbox = rig.create(json!({"templateID": "base"})).await;
    let unknown = [("e2b-sandbox-id", "snosuchsandbox"), ("e2b-sandbox-port", "49983")];
    let reply = rig.ask(Method::GET, "/health", &unknown, "").await;
    assert_eq!(reply.status, StatusCode::BAD_GATEWAY);
    let expected =
        json!({"sandboxId": "snosuchsandbox", "message": "The sandbox was not found", "code": 502});
    assert_eq!(reply.json(), expected);
    assert_eq!(reply.headers["should-retry"], "false");

    let port = [("e2b-sandbox-id", sandbox.id.as_str()), ("e2b-sandbox-port", "4321")];
    let reply = rig.ask(Method::GET, "/", &port, "").await;
    let message = "The sandbox is running but port is not open";
    let expected = json!({"sandboxId": sandbox.id, "message": message, "port": 4321, "code": 502});
    assert_eq!((reply.status, reply.json()), (StatusCode::BAD_GATEWAY, expected));
}

/// Bugs 1 and 21: whoever waits for a sandbox that is killed learns it at once, and not by a proper end.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_breaks_streams_off() {
    let rig = Rig::local().await;
    let sandbox = rig.create(json!({"templateID": "base"})).await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = Stream::start(&rig, &sandbox, "echo on; sleep 300").await;
        while !stream.next().await.expect("it goes on").expect("a message").to_string().contains("stdout") {}
        streams.push(stream);
    }
    let killed = rig.control(Method::DELETE, &format!("/sandboxes/{}", sandbox.id), Value::Null).await;
    assert_eq!(killed.status, StatusCode::NO_CONTENT);
    for mut stream in streams {
        stream.next().await.expect_err("it is broken off");
    }
    let health = rig.ask(Method::GET, "/health", &sandbox.guest(), "").await;
    assert_eq!(health.status, StatusCode::BAD_GATEWAY);
    assert!(health.text().contains("was not found"), "{}", health.text());
}

/// The process on this machine that has this word among its arguments, and those above it.
fn ancestors(word: &str) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let mut ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has_word = |id: &u32| {
        std::fs::read(format!("/proc/{id}/cmdline"))
            .is_ok_and(|line| line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes()))
    };
    let mut at = ids.find(has_word);
    let mut all = Vec::new();
    while let Some(id) = at.filter(|id| *id > 1) {
        all.push(id);
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        at = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
    }
    all
}

/// Whether it is the first process of a sandbox.
fn is_first(id: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let mut lines = status.lines().filter_map(|line| line.strip_prefix("NSpid:"));
    lines.next().is_some_and(|ids| ids.split_whitespace().count() > 1 && ids.trim_end().ends_with("\t1"))
}

/// Bug 1: a sandbox that says nothing any more, and that nobody ended, is given up within its signs of life; clients would wait for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_is_stuck_breaks_streams_off() {
    let rig = Rig::local().await;
    let sandbox = rig.create(json!({"templateID": "base"})).await;
    let word = format!("30{}", std::process::id());
    let message = json!({"process": {"cmd": "sleep", "args": [word]}, "stdin": false});
    let keepalive = [("keepalive-ping-interval", "1")];
    let mut stream = Stream::open_with(&rig, &sandbox, "/process.Process/Start", &message, &keepalive).await;
    while !stream.next().await.expect("it goes on").expect("a message").to_string().contains("keepalive") {}
    let agent = ancestors(&word).into_iter().find(|id| is_first(*id)).expect("the sandbox' first process");
    let agent = rustix::process::Pid::from_raw(agent.try_into().expect("a pid")).expect("a pid");
    rustix::process::kill_process(agent, rustix::process::Signal::STOP).expect("it stops");
    // What it said before it was stopped may be on its way.
    while stream.next().await.is_ok() {}
    rustix::process::kill_process(agent, rustix::process::Signal::CONT).expect("it goes on");
}

/// Bug 3: a process can be connected to as long as it runs. Somebody had a bound of two minutes, which is waited out where `$SANDBAR_SOAK` asks for long checks.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_can_be_connected_to_at_any_time() {
    if std::env::var_os("SANDBAR_SOAK").is_none() {
        println!("skipped: SANDBAR_SOAK is not set");
        return;
    }
    let rig = Rig::local().await;
    let sandbox = rig.create(json!({"templateID": "base"})).await;
    let mut stream = Stream::start(&rig, &sandbox, "sleep 150; echo over").await;
    let pid = stream.next().await.unwrap().unwrap()["event"]["start"]["pid"].clone();
    drop(stream);
    tokio::time::sleep(Duration::from_secs(130)).await;
    let select = json!({"process": {"pid": pid}});
    let mut again = Stream::open(&rig, &sandbox, "/process.Process/Connect", &select).await;
    let (output, end) = again.finish().await;
    assert_eq!((&output[..], &end["exited"]), (&b"over\n"[..], &json!(true)));
}

/// Who goes away ends nothing inside; and what is under way is let go, so that nothing adds up.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_leaves_the_process_alone() {
    let rig = Rig::local().await;
    let sandbox = rig.create(json!({"templateID": "base"})).await;
    let mut stream = Stream::start(&rig, &sandbox, "sleep 300").await;
    let pid = stream.next().await.unwrap().unwrap()["event"]["start"]["pid"].clone();
    drop(stream);
    let headers = [&sandbox.guest()[..], &[("content-type", "application/json")]].concat();
    let begun = Instant::now();
    loop {
        let list = rig.ask(Method::POST, "/process.Process/List", &headers, "{}").await.json();
        let is_there =
            list["processes"].as_array().is_some_and(|all| all.iter().any(|one| one["pid"] == pid));
        assert!(is_there, "{list}");
        if begun.elapsed() > Duration::from_millis(300) {
            break;
        }
    }
    let select = json!({"process": {"pid": pid}});
    let mut again = Stream::open(&rig, &sandbox, "/process.Process/Connect", &select).await;
    assert_eq!(again.next().await.unwrap().unwrap()["event"]["start"]["pid"], pid);
}
