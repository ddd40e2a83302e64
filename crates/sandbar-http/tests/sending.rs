//! What is sent, what is handed back, and what is tried again, against a server that answers by script.

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::{KEY, client, config, words};
use futures::{StreamExt, stream};
use sandbar_core::{Error, ErrorKind, Retry};
use sandbar_http::testing::{Answer, Scripted};
use sandbar_http::{Client, Idempotency, Pace, Pacer, Request, RetryPolicy, Secret};
use serde_json::{Value, json};

#[tokio::test]
async fn a_request_is_what_it_was_told_to_be() {
    let server = Scripted::start().await;
    server.push(Answer::json(201, &json!({ "id": "i1" })).with_header("x-next-token", "n"));
    let token = Secret::from("token-sentinel");
    let request = Request::post("create", server.url("/v2/sandboxes?b=1"))
        .with_json(&json!({ "a": 1 }))
        .with_header("x-extra", "yes")
        .with_secret_header("x-access-token", &token)
        .with_idempotency(Idempotency::Keyed("k-1".into()));
    assert!(!format!("{request:?}").contains("token-sentinel"), "{request:?}");
    let response = client().send(request).await.unwrap();

    assert_eq!(response.status(), 201);
    assert_eq!(response.json::<Value>().unwrap(), json!({ "id": "i1" }));
    assert_eq!(response.header("X-Next-Token"), Some("n"));
    let sent = &server.requests()[0];
    assert_eq!((sent.method.as_str(), sent.uri.to_string().as_str()), ("POST", "/v2/sandboxes?b=1"));
    assert_eq!(sent.json::<Value>(), json!({ "a": 1 }));
    for (name, value) in [
        ("content-type", "application/json"),
        ("x-extra", "yes"),
        ("x-api-key", KEY),
        ("x-access-token", "token-sentinel"),
        ("idempotency-key", "k-1"),
        ("x-request-id", response.request_id()),
    ] {
        assert_eq!(sent.header(name), Some(value), "{name}");
    }
    assert!(sent.header("user-agent").unwrap().starts_with("sandbar/"));
    assert!(sent.header("accept-encoding").is_none());
    assert!(!sent.has_in_body("sentinel"));
}

#[tokio::test]
async fn any_status_is_an_answer_and_a_redirection_is_not_followed() {
    let server = Scripted::start().await;
    let elsewhere = Scripted::start().await;
    for status in [200, 204, 302, 404, 409, 501] {
        server.push(Answer::status(status).with_header("location", &elsewhere.url("/")));
        let response = client().send(Request::get("get", server.url("/"))).await.unwrap();
        assert_eq!((response.status().as_u16(), response.attempts()), (status, 1));
    }
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn a_failure_that_may_pass_is_tried_again_where_that_does_no_harm() {
    let server = Scripted::answering(|_| Answer::status(503)).await;
    let get = || Request::get("list", server.url("/"));
    let response = client().send(get()).await.unwrap();
    assert_eq!((response.status().as_u16(), response.attempts(), server.requests().len()), (503, 4, 4));
    let ids: Vec<_> =
        server.requests().iter().map(|sent| sent.header("x-request-id").unwrap().to_owned()).collect();
    assert!(ids.iter().all(|id| id == response.request_id()), "{ids:?}");

    server.push(Answer::status(502));
    server.push(Answer::status(204));
    assert_eq!(client().send(get()).await.unwrap().status(), 204);

    let asked = server.requests().len();
    let post = || Request::post("create", server.url("/"));
    assert_eq!(client().send(post()).await.unwrap().attempts(), 1);
    assert_eq!(client().send(get().with_retry(RetryPolicy::once())).await.unwrap().attempts(), 1);
    server.push(Answer::status(503).with_header("should-retry", "false"));
    assert_eq!(client().send(get()).await.unwrap().attempts(), 1);
    assert_eq!(server.requests().len(), asked + 3);

    let keyed = client().send(post().with_idempotency(Idempotency::Keyed("k".into()))).await.unwrap();
    assert_eq!(keyed.attempts(), 4);
    assert!(server.requests()[asked + 3..].iter().all(|sent| sent.header("idempotency-key") == Some("k")));
}

#[tokio::test]
async fn who_is_told_to_come_back_does_and_who_is_told_too_late_a_time_is_told() {
    let server = Scripted::start().await;
    server.push(Answer::status(429).with_header("retry-after", "0"));
    server.push(Answer::status(204));
    let response = client().send(Request::post("create", server.url("/"))).await.unwrap();
    assert_eq!((response.status().as_u16(), response.attempts()), (204, 2));

    server.push(
        Answer::json(429, &json!({ "message": "rate limit exceeded" })).with_header("retry-after", "3600"),
    );
    let response = client().send(Request::get("list", server.url("/"))).await.unwrap();
    assert_eq!((response.status().as_u16(), response.attempts()), (429, 1));
    let error = response.unexpected();
    assert_eq!(
        (error.kind(), error.retry()),
        (ErrorKind::LimitExceeded, Retry::After(Duration::from_secs(3600)))
    );
    assert!(error.message().contains("rate limit exceeded"), "{error}");
}

#[tokio::test]
async fn what_a_status_means_is_said_with_what_is_known_of_the_outcome() {
    let server = Scripted::start().await;
    let quick = Client::new(config().with_retry(RetryPolicy::once())).unwrap();
    for (status, kind, read, made) in [
        (400, ErrorKind::InvalidInput, Retry::Never, Retry::Never),
        (401, ErrorKind::Unauthenticated, Retry::Never, Retry::Never),
        (403, ErrorKind::PermissionDenied, Retry::Never, Retry::Never),
        (404, ErrorKind::Protocol, Retry::Never, Retry::Never),
        (408, ErrorKind::Timeout, Retry::Safe, Retry::OutcomeUnknown),
        (409, ErrorKind::Conflict, Retry::Never, Retry::Never),
        (429, ErrorKind::LimitExceeded, Retry::Safe, Retry::Safe),
        (500, ErrorKind::Unavailable, Retry::Safe, Retry::OutcomeUnknown),
        (504, ErrorKind::Timeout, Retry::Safe, Retry::OutcomeUnknown),
        (302, ErrorKind::Protocol, Retry::Never, Retry::OutcomeUnknown),
    ] {
        let post = || Request::post("op", server.url("/x"));
        for (request, retry) in [
            (Request::get("op", server.url("/x")), read),
            (post(), made),
            (post().with_idempotency(Idempotency::Keyed("k".into())), made),
            (post().with_idempotency(Idempotency::Safe), read),
        ] {
            server.push(Answer::status(status));
            let error = quick.send(request.with_resource("it")).await.unwrap().refused("no");
            assert_eq!((error.kind(), error.retry()), (kind, retry), "{status} {error}");
            assert_eq!(
                (error.operation(), error.backend(), error.resource()),
                ("op", Some("test"), Some("it"))
            );
            assert_eq!(error.message().contains("is unknown"), retry == Retry::OutcomeUnknown, "{error}");
        }
    }
}

#[tokio::test]
async fn no_error_shows_a_credential() {
    let token = Secret::from("token\"sentinel");
    let server = Scripted::answering(|request| {
        // What some servers do: they say what they were sent.
        let echo =
            format!("{} {} {:?}", request.uri, String::from_utf8_lossy(&request.body), request.headers);
        Answer::json(500, &json!({ "message": echo, "envdAccessToken": "new-sentinel" }))
    })
    .await;
    let request = Request::post("create", server.url("/files?signature=v1_sentinel"))
        .with_json(&json!({ "token": token.expose() }))
        .with_secret(&token)
        .with_header("authorization", "Bearer bearer-sentinel");
    let response = client().send(request).await.unwrap();
    let error = response.unexpected();
    let said = words(&error) + &format!("{response:?}") + &words(&response.unreadable("it has no id"));
    assert!(!said.contains("sentinel"), "{said}");
    assert!(said.contains("[hidden]"), "{said}");

    // Nobody is there.
    let gone = server.url("/?token=url-sentinel");
    drop(server);
    let error = client().send(Request::get("list", gone).with_secret(&token)).await.unwrap_err();
    assert!(!words(&error).contains("sentinel"), "{}", words(&error));
}

#[tokio::test]
async fn nothing_is_sent_where_nobody_listens() {
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let request = Request::post("create", format!("http://{free}/"));
    let error = client().send(request).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, Retry::Safe), "{error:?}");
    assert!(error.message().starts_with("no connection to `127.0.0.1:"), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_not_held() {
    let server = Scripted::answering(|_| Answer::status(200).with_body(vec![b'x'; 1001])).await;
    let request = || Request::get("read", server.url("/"));
    let whole = client().send(request().with_body_limit(1001)).await.unwrap();
    assert_eq!(whole.body().len(), 1001);
    let error = client().send(request().with_body_limit(1000)).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Protocol, Retry::Never), "{error}");
    let post = Request::post("make", server.url("/")).with_body_limit(1000);
    assert_eq!(client().send(post).await.unwrap_err().retry(), Retry::OutcomeUnknown);
    let opened = client().open(request()).await.unwrap();
    assert!(opened.into_response(1000).await.unwrap_err().message().contains("1000 bytes"));
}

#[tokio::test]
async fn a_stream_is_sent_as_it_comes_and_only_once() {
    let server = Scripted::start().await;
    let pieces = || stream::iter(["ab", "c", "def"]).map(|piece| Ok(Bytes::from(piece))).boxed();
    for (length, framing) in [(None, "transfer-encoding"), (Some(6), "content-length")] {
        server.push(Answer::status(204));
        let request = Request::put("write", server.url("/")).with_stream(pieces(), length);
        assert_eq!(client().send(request).await.unwrap().status(), 204);
        let sent = server.requests().pop().unwrap();
        assert_eq!(&sent.body[..], b"abcdef");
        assert!(sent.header(framing).is_some(), "{:?}", sent.headers);
    }
    server.push(Answer::status(503));
    let request = Request::put("write", server.url("/")).with_stream(pieces(), None);
    let response = client().send(request.with_idempotency(Idempotency::Safe)).await.unwrap();
    assert_eq!((response.status().as_u16(), response.attempts()), (503, 1));
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_its_own_error() {
    let server = Scripted::start().await;
    let broken = || {
        let fault = Error::new(ErrorKind::NotFound, "read", "the source is gone");
        stream::iter([Ok(Bytes::from_static(b"ab")), Err(fault)]).boxed()
    };
    let short = || stream::iter([Ok(Bytes::from_static(b"ab"))]).boxed();
    for (body, length, kind, word) in [
        (broken(), None, ErrorKind::NotFound, "the source is gone"),
        (short(), Some(3), ErrorKind::InvalidInput, "3 bytes"),
        (short(), Some(1), ErrorKind::InvalidInput, "1 bytes"),
    ] {
        let request = Request::put("write", server.url("/")).with_stream(body, length);
        let error = client().send(request).await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (kind, Retry::OutcomeUnknown), "{error:?}");
        assert!(error.message().contains(word) && error.operation() == "write", "{error}");
    }
    assert!(server.requests().is_empty(), "none of them was whole");
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_said_before_anything_is_sent() {
    let server = Scripted::start().await;
    let url = server.url("/");
    let bad = std::collections::BTreeMap::from([((1, 2), 3)]);
    for request in [
        Request::get("get", "ftp://example.com/"),
        Request::get("get", url.replace("http://", "http://me:secret@")),
        Request::get("get", &url).with_header("x", "a\nb"),
        Request::get("get", &url).with_secret_header("x", &Secret::from("secret\n")),
        Request::post("get", &url).with_json(&bad),
        Request::post("get", &url).with_idempotency(Idempotency::Keyed("a\nb".into())),
    ] {
        let error = client().send(request).await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::InvalidInput, Retry::Never), "{error}");
        assert!(!words(&error).contains("secret"), "{error:?}");
    }
    assert!(server.requests().is_empty());
    let error = config().with_secret_header("x-api-key", &Secret::from("secret\n")).unwrap_err();
    assert!(error.kind() == ErrorKind::Config && !words(&error).contains("secret"), "{error:?}");
}

#[tokio::test]
async fn who_would_wait_too_long_for_a_turn_sends_nothing() {
    let server = Scripted::answering(|_| Answer::status(204)).await;
    let client = Client::new(config().with_pacer(Pacer::new(Duration::ZERO))).unwrap();
    let stop = || {
        Request::post("stop", server.url("/")).with_pace(Pace::new("stop m1", Duration::from_secs(3600), 2))
    };
    for _ in 0..2 {
        client.send(stop()).await.unwrap();
    }
    let error = client.clone().send(stop()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error}");
    assert!(matches!(error.retry(), Retry::After(wait) if wait > Duration::from_secs(3000)), "{error:?}");
    assert_eq!(server.requests().len(), 2);
}
