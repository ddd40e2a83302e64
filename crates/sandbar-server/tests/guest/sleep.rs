//! Sandboxes that sleep: what is under way ends, and a request wakes those that want it.

use std::time::Instant;

use http::{Method, StatusCode};
use sandbar::{SandboxExt as _, State};
use serde_json::{Value, json};

use crate::common::{PATIENCE, Rig};
use crate::envd::Stream;

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_falls_asleep_breaks_streams_off_and_is_not_found() {
    let rig = Rig::local().await;
    let made = rig.create(json!({"templateID": "base"})).await;
    let mut stream = Stream::start(&rig, &made, "echo on; sleep 300").await;
    while !stream.next().await.unwrap().unwrap().to_string().contains("stdout") {}
    let sandbox = rig.sandbox(&made.id).await;
    // By somebody else, as its deadline does it: nobody tells the server.
    sandbox.require_pausing().expect("it can").hibernate().await.expect("it sleeps");
    stream.next().await.expect_err("it is broken off");
    for (method, path) in [(Method::GET, "/health"), (Method::POST, "/process.Process/List")] {
        let reply = rig.ask(method, path, &made.guest(), "{}").await;
        assert_eq!(reply.status, StatusCode::BAD_GATEWAY, "{}", reply.text());
        assert!(reply.text().contains("The sandbox was not found"), "{}", reply.text());
    }
    assert_eq!(sandbox.record().await.unwrap().state, State::Sleeping, "nobody woke it");
    sandbox.wake().await.expect("it wakes");
    let health = rig.ask(Method::GET, "/health", &made.guest(), "").await;
    assert_eq!(health.status, StatusCode::NO_CONTENT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_wakes_a_sandbox_that_wants_it_once_for_all() {
    let rig = Rig::local().await;
    let body =
        json!({"templateID": "base", "timeout": 60, "autoPause": true, "autoResume": {"enabled": true}});
    let made = rig.create(body).await;
    let mut stream = Stream::start(&rig, &made, "sleep 300").await;
    let pid = stream.next().await.unwrap().unwrap()["event"]["start"]["pid"].clone();
    let sandbox = rig.sandbox(&made.id).await;
    for round in 0..3 {
        sandbox.require_pausing().expect("it can").hibernate().await.expect("it sleeps");
        // Nobody wakes it who has nothing of it.
        if round == 0 {
            let stranger = rig.ask(Method::GET, "/health", &made.guest()[..2], "").await;
            assert!(matches!(stranger.status.as_u16(), 403), "{} {}", stranger.status, stranger.text());
            assert_eq!(sandbox.record().await.unwrap().state, State::Sleeping);
        }
        let headers = [&made.guest()[..], &[("content-type", "application/json")]].concat();
        let asked = (0..12).map(|_| rig.ask(Method::POST, "/process.Process/List", &headers, "{}"));
        for reply in futures::future::join_all(asked).await {
            assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
            let list = reply.json();
            assert!(list["processes"].as_array().unwrap().iter().any(|one| one["pid"] == pid), "{list}");
        }
        let record = sandbox.record().await.unwrap();
        assert_eq!(record.state, State::Running);
        let left = record.deadline.expect("it ends by itself").duration_since(jiff::Timestamp::now());
        assert!((200..=300).contains(&left.as_secs()), "five minutes at least: {left}");
    }
    // Any port wakes it; that nothing listens is said afterwards.
    sandbox.require_pausing().unwrap().hibernate().await.expect("it sleeps");
    let port = [("e2b-sandbox-id", made.id.as_str()), ("e2b-sandbox-port", "4321")];
    let reply = rig.ask(Method::GET, "/", &port, "").await;
    assert!(reply.text().contains("port is not open"), "{}", reply.text());
    assert_eq!(sandbox.record().await.unwrap().state, State::Running);
}

/// Bug 5: streams of before a sleep are nobody's afterwards; each new one has all that comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_after_the_sleep_has_all_that_comes() {
    let rig = Rig::local().await;
    let body = json!({"templateID": "base", "autoPause": true, "autoResume": {"enabled": true}});
    let made = rig.create(body).await;
    let script = "while true; do for n in 1 2 3 4 5; do echo line $n; done; sleep 0.1; done";
    let mut stream = Stream::start(&rig, &made, script).await;
    let pid = stream.next().await.unwrap().unwrap()["event"]["start"]["pid"].clone();
    let sandbox = rig.sandbox(&made.id).await;
    for _ in 0..6 {
        sandbox.require_pausing().unwrap().hibernate().await.expect("it sleeps");
        let select = json!({"process": {"pid": pid}});
        let mut again = Stream::open(&rig, &made, "/process.Process/Connect", &select).await;
        assert_eq!(again.status, StatusCode::OK);
        let mut data = 0;
        while data < 5 {
            let message = again.next().await.expect("it goes on").expect("a message");
            data += usize::from(!message["event"]["data"].is_null());
        }
    }
}

/// Bug 12: what goes on after a sleep that the deadline began is listed as it is: a server that holds its port is among the processes.
#[tokio::test(flavor = "multi_thread")]
async fn the_list_after_a_sleep_has_the_server_that_still_answers() {
    let rig = Rig::local().await;
    let made = rig.create(json!({"templateID": "base", "autoPause": true})).await;
    let mut stream = Stream::start(&rig, &made, "cd /tmp && exec python3 -m http.server 8000").await;
    let pid = stream.next().await.unwrap().unwrap()["event"]["start"]["pid"].clone();
    drop(stream);
    let port = [("e2b-sandbox-id", made.id.as_str()), ("e2b-sandbox-port", "8000")];
    let answers = async || rig.ask(Method::GET, "/", &port, "").await.status == StatusCode::OK;
    let begun = Instant::now();
    while !answers().await {
        assert!(begun.elapsed() < PATIENCE, "the server in the sandbox does not listen");
    }
    let over =
        rig.control(Method::POST, &format!("/sandboxes/{}/timeout", made.id), json!({"timeout": 0})).await;
    assert_eq!(over.status, StatusCode::NO_CONTENT, "{}", over.text());
    let sandbox = rig.sandbox(&made.id).await;
    while sandbox.record().await.unwrap().state != State::Sleeping {
        assert!(begun.elapsed() < 2 * PATIENCE, "its deadline does not put it to sleep");
    }
    let connected = rig.control(Method::POST, &format!("/v2/sandboxes/{}/connect", made.id), json!({})).await;
    assert_eq!(connected.status, StatusCode::CREATED, "{}", connected.text());
    let headers = [&made.guest()[..], &[("content-type", "application/json")]].concat();
    let list = rig.ask(Method::POST, "/process.Process/List", &headers, "{}").await.json();
    assert!(list["processes"].as_array().unwrap().iter().any(|one| one["pid"] == pid), "{list}");
    assert!(answers().await, "it holds its port");
}

/// Bug 13: what was written stays, however often a sandbox sleeps.
#[tokio::test(flavor = "multi_thread")]
async fn files_outlast_every_sleep() {
    let rig = Rig::local().await;
    let made = rig.create(json!({"templateID": "base"})).await;
    let headers = [&made.guest()[..], &[("content-type", "application/octet-stream")]].concat();
    for round in 0..5 {
        let target = format!("/files?path=/home/user/file-{round}");
        let written = rig.ask(Method::POST, &target, &headers, format!("of round {round}")).await;
        assert_eq!(written.status, StatusCode::OK, "{}", written.text());
        let paused = rig.control(Method::POST, &format!("/sandboxes/{}/pause", made.id), Value::Null).await;
        assert_eq!(paused.status, StatusCode::NO_CONTENT, "{}", paused.text());
        let resumed =
            rig.control(Method::POST, &format!("/v2/sandboxes/{}/connect", made.id), json!({})).await;
        assert_eq!(resumed.status, StatusCode::CREATED, "{}", resumed.text());
        for earlier in 0..=round {
            let target = format!("/files?path=/home/user/file-{earlier}");
            let read = rig.ask(Method::GET, &target, &made.guest(), "").await;
            assert_eq!(read.text(), format!("of round {earlier}"), "in round {round}");
        }
    }
}
