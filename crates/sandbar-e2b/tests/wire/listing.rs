use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sandbar_core::{ErrorKind, Labels, ProjectId, ProviderExt, Query, State};
use sandbar_http::testing::{Answer, Recorded, Scripted};
use serde_json::{Value, json};

use crate::script::{absent, asked, detail, made, provider, refused};

/// A server with so many sandboxes, a hundred a page.
async fn with(count: usize) -> Scripted {
    Scripted::answering(move |request| {
        let query = request.uri.query().unwrap_or_default();
        let from: usize = query.split("nextToken=p").nth(1).map_or(0, |text| text.parse().unwrap());
        let rows: Vec<Value> =
            (from..count.min(from + 100)).map(|n| detail(&format!("i{n}"), json!({}))).collect();
        let answer = Answer::json(200, &rows);
        if from + 100 < count {
            answer.with_header("X-Next-Token", &format!("p{}", from + 100))
        } else {
            answer
        }
    })
    .await
}

#[tokio::test]
async fn five_hundred_sandboxes_are_five_requests_and_no_connect() {
    for (count, pages) in [(0, 1), (1, 1), (100, 1), (101, 2), (500, 5)] {
        let server = with(count).await;
        let records = provider(&server).list_all(Query::new()).await.unwrap();
        assert_eq!(records.len(), count);
        assert_eq!(server.count("GET", "/v2/sandboxes"), pages);
        assert_eq!(server.requests().len(), pages);
    }
}

#[tokio::test]
async fn what_is_asked_for_is_filtered_by_the_server_and_again_here() {
    let server = Scripted::answering(|_| {
        let metadata = json!({"a": "b c", "projectId": "p"});
        Answer::json(200, &[detail("i1", json!({"metadata": metadata})), detail("i2", json!({}))])
    })
    .await;
    let query = Query::new()
        .with_labels(Labels::new().with("a", "b c").unwrap())
        .with_project(ProjectId::new("p").unwrap())
        .with_states([State::Running]);
    let records = provider(&server).list_all(query).await.unwrap();
    assert_eq!(records.len(), 1);
    let wanted = "GET /v2/sandboxes?limit=100&metadata=a%3Db%252520c%26projectId%3Dp&state=running";
    assert_eq!(asked(&server), [wanted]);
}

#[tokio::test]
async fn an_envelope_that_nobody_knows_is_an_error_and_no_empty_list() {
    for answer in [
        Answer::json(200, &json!({"sandboxes": [detail("i1", json!({}))]})),
        Answer::json(200, &json!({"items": []})),
        Answer::json(200, &Value::Null),
        Answer::status(200),
        Answer::status(200).with_body("[{\"sandboxID\":\"i1\""),
        Answer::json(200, &[json!({"templateID": "t1"})]),
    ] {
        let server = Scripted::answering(move |_| answer.clone()).await;
        let error = provider(&server).list_all(Query::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        // The excerpt of what was seen is bounded.
        assert!(error.to_string().len() < 600, "{error}");
    }
}

#[tokio::test]
async fn a_listing_that_breaks_off_ends_with_an_error() {
    let server = Scripted::start().await;
    server.push(Answer::json(200, &[detail("i1", json!({}))]).with_header("x-next-token", "p1"));
    server.push(refused(500, "no"));
    assert_eq!(provider(&server).list_all(Query::new()).await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_page_that_comes_again_is_an_error_and_a_row_that_does_is_one_sandbox() {
    let again = || Answer::json(200, &[detail("i1", json!({}))]).with_header("x-next-token", "p1");
    let server = Scripted::answering(move |_| again()).await;
    let error = provider(&server).list_all(Query::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    let server = Scripted::start().await;
    server.push(again());
    server.push(Answer::json(200, &[detail("i1", json!({})), detail("i2", json!({}))]));
    assert_eq!(provider(&server).list_all(Query::new()).await.unwrap().len(), 2);
}

/// Answers connects late enough for all that may be in flight to be so.
async fn connecting(count: usize, fails: Option<usize>, gone: Option<usize>) -> (Scripted, Arc<AtomicUsize>) {
    let connects = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connects);
    let server = Scripted::answering(move |request: &Recorded| {
        if request.method == "GET" {
            let rows = (0..count).map(|n| {
                detail(&format!("i{n}"), json!({"state": if n == 1 { "paused" } else { "running" }}))
            });
            return Answer::json(200, &rows.collect::<Vec<_>>());
        }
        counted.fetch_add(1, Ordering::SeqCst);
        let number =
            request.path().split('/').nth(3).and_then(|id| id[1..].parse::<usize>().ok()).unwrap_or(0);
        match number {
            number if Some(number) == fails => refused(500, "no"),
            number if Some(number) == gone => absent(),
            number => Answer::json(200, &made(&format!("i{number}"))),
        }
    })
    .await;
    (server, connects)
}

#[tokio::test]
async fn live_sandboxes_leave_out_those_that_sleep_or_vanish_and_keep_their_order() {
    let (server, _) = connecting(40, None, Some(5)).await;
    let live = provider(&server).live_sandboxes().await.unwrap();
    let ids: Vec<_> = live.iter().map(|sandbox| sandbox.id().to_string()).collect();
    let wanted: Vec<_> = (0..40).filter(|n| ![1, 5].contains(n)).map(|n| format!("i{n}")).collect();
    assert_eq!(ids, wanted);
    assert_eq!(server.count("POST", "/v2/sandboxes/i1/connect"), 0);
    let connect = server.requests().into_iter().find(|request| request.method == "POST").unwrap();
    assert_eq!(connect.json::<Value>(), json!({"timeout": 3600}));
}

#[tokio::test]
async fn the_first_failure_of_live_sandboxes_is_the_answer_and_ends_the_rest() {
    let (server, connects) = connecting(400, Some(0), None).await;
    let error = provider(&server).live_sandboxes().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    // Those that were in flight with it, and what each of them let in before it failed.
    assert!(connects.load(Ordering::SeqCst) < 100, "{connects:?}");
    drop(server);
}

#[tokio::test]
async fn no_more_than_sixteen_connects_are_in_flight() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    // Connections are what is in flight: each is answered when no other comes for a while.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::new(Mutex::new(0_usize));
    let (current, highest) = (Arc::clone(&now), Arc::clone(&most));
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (now, most, seen) = (Arc::clone(&current), Arc::clone(&highest), Arc::clone(&seen));
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                let head = loop {
                    assert!(stream.read_buf(&mut bytes).await.unwrap() > 0, "the request is whole");
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                    let length = head
                        .lines()
                        .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
                    if body.len() >= length.unwrap_or(0) {
                        break head.to_owned();
                    }
                };
                let body = if head.starts_with("GET") {
                    let rows: Vec<Value> = (0..50).map(|n| detail(&format!("i{n}"), json!({}))).collect();
                    json!(rows).to_string()
                } else {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    for _ in 0..50 {
                        tokio::task::yield_now().await;
                    }
                    let mut count = seen.lock().unwrap();
                    *count += 1;
                    let id = head.split('/').nth(3).unwrap().to_owned();
                    now.fetch_sub(1, Ordering::SeqCst);
                    made(&id).to_string()
                };
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    let config = sandbar_e2b::E2bConfig::new().with_api_key("k").with_api_url(address);
    let provider = sandbar_e2b::E2bProvider::open(config).unwrap();
    assert_eq!(provider.live_sandboxes().await.unwrap().len(), 50);
    let most = most.load(Ordering::SeqCst);
    assert!((2..=16).contains(&most), "{most} at once");
}
