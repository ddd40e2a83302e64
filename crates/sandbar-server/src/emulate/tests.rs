use base64::Engine as _;
use http_body_util::BodyExt as _;
use sandbar_core::{CreateOptions, MemoryProvider, SandboxProvider as _};
use sandbar_wire::envd::{FrameDecoder, message_frame};
use serde_json::{Value, json};

use super::*;

async fn sandbox() -> Arc<dyn Sandbox> {
    MemoryProvider::new().create(CreateOptions::new()).await.unwrap()
}

async fn ask(
    sandbox: &Arc<dyn Sandbox>,
    method: &str,
    target: &str,
    kind: &str,
    body: impl Into<Body>,
) -> (StatusCode, Vec<u8>) {
    let request = Request::builder().method(method).uri(target).header("content-type", kind);
    let response = serve(Arc::clone(sandbox), request.body(body.into()).unwrap()).await;
    let (parts, body) = response.into_parts();
    (parts.status, body.collect().await.unwrap().to_bytes().to_vec())
}

async fn call(sandbox: &Arc<dyn Sandbox>, method: &str, message: Value) -> (StatusCode, Value) {
    let (status, body) = ask(sandbox, "POST", method, "application/json", message.to_string()).await;
    (status, serde_json::from_slice(&body).unwrap())
}

/// What a stream said, and how the process ended.
async fn run(sandbox: &Arc<dyn Sandbox>, message: Value) -> (Vec<u8>, Value, Value) {
    let frame = message_frame(&message);
    let (status, body) =
        ask(sandbox, "POST", "/process.Process/Start", "application/connect+json", frame).await;
    assert_eq!(status, StatusCode::OK);
    let mut decoder = FrameDecoder::new(MAX_CALL);
    decoder.push(&body);
    let (mut output, mut end, mut last) = (Vec::new(), Value::Null, Value::Null);
    let mut is_first = true;
    while let Some(frame) = decoder.next_frame().unwrap() {
        let message: Value = serde_json::from_slice(&frame.payload).unwrap();
        assert!(!is_first || frame.is_end() || !message["event"]["start"].is_null(), "{message}");
        is_first = false;
        if let Some(text) = message["event"]["data"]["stdout"].as_str() {
            output.extend(base64::engine::general_purpose::STANDARD.decode(text).unwrap());
        }
        if !message["event"]["end"].is_null() {
            end = message["event"]["end"].clone();
        }
        last = message;
    }
    (output, end, last)
}

#[tokio::test]
async fn files_are_those_of_the_sandbox() {
    let sandbox = sandbox().await;
    assert_eq!(ask(&sandbox, "GET", "/health", "", "").await.0, StatusCode::NO_CONTENT);
    let octets = "application/octet-stream";
    let (status, written) = ask(&sandbox, "POST", "/files?path=x/a.txt", octets, "text").await;
    assert_eq!(status, StatusCode::OK);
    let written: Value = serde_json::from_slice(&written).unwrap();
    assert_eq!(written, json!([{"path": "/home/user/x/a.txt", "name": "a.txt", "type": "file"}]));
    let form =
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"y/b.txt\"\r\n\r\nmore\r\n--b--\r\n";
    let kind = "multipart/form-data; boundary=b";
    assert_eq!(ask(&sandbox, "POST", "/files", kind, form).await.0, StatusCode::OK);
    for (path, text) in [("x/a.txt", "text"), ("/home/user/y/b.txt", "more"), ("~/y/b.txt", "more")] {
        assert_eq!(ask(&sandbox, "GET", &format!("/files?path={path}"), "", "").await.1, text.as_bytes());
    }
    for (path, status) in [("z", 404), ("x", 400), ("", 400)] {
        assert_eq!(
            ask(&sandbox, "GET", &format!("/files?path={path}"), "", "").await.0.as_u16(),
            status,
            "{path}"
        );
    }
    assert_eq!(ask(&sandbox, "POST", "/files?path=a", "text/plain", "x").await.0, StatusCode::BAD_REQUEST);

    let stat = "/filesystem.Filesystem/Stat";
    let (_, found) = call(&sandbox, stat, json!({"path": "x/a.txt"})).await;
    assert_eq!((&found["entry"]["size"], &found["entry"]["type"]), (&json!("4"), &json!("FILE_TYPE_FILE")));
    let (status, missing) = call(&sandbox, stat, json!({"path": "/no"})).await;
    assert_eq!((status, &missing["code"]), (StatusCode::NOT_FOUND, &json!("not_found")));
    let list = "/filesystem.Filesystem/ListDir";
    assert_eq!(call(&sandbox, list, json!({"path": "x"})).await.1["entries"][0]["name"], "a.txt");
    assert_eq!(call(&sandbox, list, json!({"path": "x/a.txt"})).await.0, StatusCode::BAD_REQUEST);
    let make = "/filesystem.Filesystem/MakeDir";
    assert_eq!(call(&sandbox, make, json!({"path": "new"})).await.0, StatusCode::OK);
    assert_eq!(call(&sandbox, make, json!({"path": "new"})).await.1["code"], "already_exists");
    let (_, moved) = call(
        &sandbox,
        "/filesystem.Filesystem/Move",
        json!({"source": "x/a.txt", "destination": "/tmp/c.txt"}),
    )
    .await;
    assert_eq!(moved["entry"]["path"], "/tmp/c.txt");
    for _ in 0..2 {
        let removed = call(&sandbox, "/filesystem.Filesystem/Remove", json!({"path": "/tmp/c.txt"})).await;
        assert_eq!(removed.0, StatusCode::OK);
    }
    // What is not there says so, and is no success.
    let (status, polled) = call(&sandbox, "/filesystem.Filesystem/CreateWatcher", json!({"path": "x"})).await;
    assert_eq!((status, &polled["code"]), (StatusCode::NOT_IMPLEMENTED, &json!("unimplemented")));
    assert_eq!(call(&sandbox, "/other.Service/Call", json!({})).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn processes_are_those_of_the_sandbox() {
    let sandbox = sandbox().await;
    let start = |script: &str| json!({"process": {"cmd": "/bin/sh", "args": ["-c", script]}, "stdin": false});
    let (output, end, last) = run(&sandbox, start("echo hi; exit 3")).await;
    assert_eq!((&output[..], &end["exitCode"], &end["exited"]), (&b"hi\n"[..], &json!(3), &json!(true)));
    assert_eq!(last, json!({}), "a proper end");
    let (_, end, _) = run(&sandbox, start("true")).await;
    assert!(end["exitCode"].is_null() && end["error"].is_null(), "{end}");
    let (_, end, last) = run(&sandbox, json!({"process": {"cmd": "no-such-program"}})).await;
    assert!(end.is_null() && last["error"]["code"] == "invalid_argument", "{last}");

    let options = sandbar_core::SpawnOptions::new().with_tag("t");
    let part = sandbox.processes().unwrap();
    let process = part.spawn(&sandbar_core::Command::new("sleep").arg("60"), options).await.unwrap();
    let (_, listed) = call(&sandbox, "/process.Process/List", json!({})).await;
    assert_eq!(
        (&listed["processes"][0]["pid"], &listed["processes"][0]["tag"]),
        (&json!(process.pid), &json!("t"))
    );
    let signal = "/process.Process/SendSignal";
    let of = |selector: Value| json!({"process": selector, "signal": "SIGNAL_SIGKILL"});
    assert_eq!(call(&sandbox, signal, of(json!({"tag": "t"}))).await.0, StatusCode::OK);
    let exit = process.wait().await.unwrap();
    assert_eq!(exit.status, sandbar_core::ExitStatus::Signal(9));
    for selector in [json!({"pid": 99_999}), json!({"tag": "u"})] {
        let (status, answer) = call(&sandbox, signal, of(selector)).await;
        assert_eq!((status, &answer["code"]), (StatusCode::NOT_FOUND, &json!("not_found")));
    }
    assert_eq!(call(&sandbox, signal, of(json!({}))).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn messages_that_are_none_are_refused() {
    let sandbox = sandbox().await;
    for body in [&b""[..], b"\0\0\0\0\x05{}", b"\0\xff\xff\xff\xff", b"\0\0\0\0\x01{"] {
        let (status, answer) =
            ask(&sandbox, "POST", "/process.Process/Start", "application/connect+json", body.to_vec()).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(status == StatusCode::OK && answer.contains("invalid_argument"), "{answer}");
    }
    let (status, answer) = ask(&sandbox, "POST", "/process.Process/List", "application/json", "[").await;
    // It takes no message, and whoever sends one that is none is not looked at.
    assert!(status.is_success() || status.is_client_error(), "{}", String::from_utf8_lossy(&answer));
}
