//! Each fault of the proxy, and what the client makes of it. The server behind is a scripted one: what it was asked says whether a fault came before
//! or after the deed.

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::client;
use futures::{StreamExt, TryStreamExt, stream};
use sandbar_core::{Error, ErrorKind, Result, Retry};
use sandbar_http::testing::{Answer, Fault, FaultProxy, Rule, Scripted, Then, Where};
use sandbar_http::{Request, Response};
use serde_json::{Value, json};
use tokio::time::timeout;

/// Nothing here takes longer unless it hangs.
const BOUND: Duration = Duration::from_secs(60);

/// So long is waited for what never comes.
const SHORT: Duration = Duration::from_millis(300);

const BODY: &str = r#"[{"name":"grüße €"},{"name":"end"}]"#;

struct Bed {
    server: Scripted,
    proxy: FaultProxy,
}

impl Bed {
    async fn new() -> Self {
        let server = Scripted::answering(|request| {
            let answer = Answer::json(200, &json!(null)).with_body(BODY);
            answer.with_header("x-seen", &request.body.len().to_string())
        })
        .await;
        let proxy = FaultProxy::start(server.address()).await;
        Self { server, proxy }
    }

    fn get(&self) -> Request {
        Request::get("list", format!("{}/list", self.proxy.url()))
    }

    fn post(&self) -> Request {
        Request::post("make", format!("{}/make", self.proxy.url())).with_bytes("0123456789")
    }

    async fn send(&self, request: Request) -> Result<Response> {
        timeout(BOUND, client().send(request)).await.expect("a call ends")
    }

    async fn fails(&self, request: Request) -> Error {
        self.send(request).await.map(|response| format!("{response:?}")).unwrap_err()
    }
}

fn lost(error: &Error, retry: Retry) {
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, retry), "{error:?}");
}

#[tokio::test]
async fn without_a_rule_everything_passes_as_it_is() {
    let bed = Bed::new().await;
    let response = bed.send(bed.post()).await.unwrap();
    assert_eq!(response.body(), BODY);
    assert_eq!(response.header("x-seen"), Some("10"));
    assert_eq!(response.header("content-length"), Some(BODY.len().to_string().as_str()));
    assert_eq!((bed.proxy.count("POST", "/make"), bed.proxy.count("GET", "*")), (1, 0));
}

#[tokio::test]
async fn an_answer_instead_of_the_servers_and_one_after_the_deed() {
    let bed = Bed::new().await;
    let instead = bed.proxy.inject(Rule::on("POST", "/make").nth(1), Fault::status(409, "busy"));
    let after = bed.proxy.inject(Rule::on("POST", "*").nth(2), Fault::AnswerAfter(Answer::status(503)));
    for (status, seen) in [(409, 0), (503, 1), (200, 2)] {
        assert_eq!(bed.send(bed.post()).await.unwrap().status(), status);
        assert_eq!(bed.server.requests().len(), seen);
    }
    assert_eq!((instead.hits(), after.hits()), (1, 1));
}

#[tokio::test]
async fn a_rate_limit_that_passes_is_waited_out() {
    let bed = Bed::new().await;
    let limit = Fault::Answer(Answer::status(429).with_header("retry-after", "0"));
    let limited = bed.proxy.inject(Rule::on("*", "*").times(2), limit);
    assert_eq!(bed.send(bed.post()).await.unwrap().attempts(), 3);
    assert_eq!((limited.hits(), bed.server.requests().len()), (2, 1));
}

#[tokio::test]
async fn a_reset_is_survived_where_repeating_does_no_harm_and_else_the_outcome_is_unknown() {
    for (fault, done) in [(Fault::Refuse, 0), (Fault::Lose, 1)] {
        let bed = Bed::new().await;
        let injected = bed.proxy.inject(Rule::on("*", "*").times(1), fault);
        lost(&bed.fails(bed.post()).await, Retry::OutcomeUnknown);
        assert_eq!((injected.hits(), bed.server.requests().len()), (1, done));
    }
    for fault in [
        Fault::Refuse,
        Fault::Lose,
        Fault::Body(Where::Byte(3), Then::Reset),
        Fault::Body(Where::End, Then::Close),
    ] {
        let bed = Bed::new().await;
        let injected = bed.proxy.inject(Rule::on("*", "*").times(2), fault.clone());
        let response = bed.send(bed.get()).await.unwrap();
        assert_eq!((response.attempts(), response.body().as_ref()), (3, BODY.as_bytes()), "{fault:?}");
        assert_eq!(injected.hits(), 2);
        bed.proxy.clear();
        bed.proxy.inject(Rule::on("*", "*"), fault);
        lost(&bed.fails(bed.get()).await, Retry::Safe);
        assert_eq!(bed.proxy.count("GET", "/list"), 4);
    }
}

#[tokio::test]
async fn a_reset_within_the_request_is_one_of_unknown_outcome() {
    let bed = Bed::new().await;
    let cut = bed.proxy.inject(Rule::on("POST", "/make"), Fault::ResetRequest(4));
    let body = || stream::iter(0..10).map(|n| Ok(Bytes::from(n.to_string()))).boxed();
    for request in
        [bed.post(), bed.post().with_stream(body(), None), bed.post().with_stream(body(), Some(10))]
    {
        lost(&bed.fails(request).await, Retry::OutcomeUnknown);
    }
    assert_eq!((cut.hits(), bed.server.requests().len()), (3, 0));
    // A body that does not come as far passes.
    assert_eq!(bed.send(bed.post().with_bytes("012")).await.unwrap().header("x-seen"), Some("3"));
}

#[tokio::test]
async fn what_stalls_is_late_and_comes_once_it_is_released() {
    for (fault, is_done) in
        [(Fault::Stall, false), (Fault::StallAfter, true), (Fault::Body(Where::Byte(0), Then::Stall), true)]
    {
        let bed = Bed::new().await;
        let held = bed.proxy.inject(Rule::on("*", "*"), fault.clone());
        // On a busy machine a request may not even have come when it is late.
        while held.hits() == 0 {
            let error = bed.fails(bed.post().with_timeout(SHORT)).await;
            assert_eq!(
                (error.kind(), error.retry()),
                (ErrorKind::Timeout, Retry::OutcomeUnknown),
                "{error:?}"
            );
        }
        assert_eq!(!bed.server.requests().is_empty(), is_done, "{fault:?}");

        let hits = held.hits();
        let ask = async {
            held.until_hit(hits + 1).await;
            held.release();
        };
        let (response, ()) = tokio::join!(bed.send(bed.post()), ask);
        assert_eq!(response.unwrap().body(), BODY);
    }
}

#[tokio::test]
async fn a_stream_that_is_held_yields_what_came_and_then_is_silent() {
    let bed = Bed::new().await;
    bed.proxy.inject(Rule::on("*", "*"), Fault::Body(Where::Before("{\"name\":\"end".into()), Then::Stall));
    let mut stream = client().open(bed.get().with_idle_timeout(7 * SHORT)).await.unwrap();
    let mut came = Vec::new();
    let error = loop {
        match timeout(BOUND, stream.next()).await.expect("a stream goes on or ends") {
            Some(Ok(piece)) => came.extend_from_slice(&piece),
            Some(Err(error)) => break error,
            None => panic!("a stream that is held has no end"),
        }
    };
    assert_eq!(String::from_utf8(came).unwrap(), "[{\"name\":\"grüße €\"},");
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Timeout, Retry::Safe), "{error:?}");
    assert!(stream.next().await.is_none());
    bed.proxy.until_open(0).await;

    // An end that comes late is an end.
    bed.proxy.clear();
    let late = bed.proxy.inject(Rule::on("*", "*"), Fault::Body(Where::End, Then::Stall));
    let stream = client().open(bed.get()).await.unwrap();
    let release = async {
        late.until_hit(1).await;
        late.release();
    };
    let (whole, ()) = tokio::join!(timeout(BOUND, stream.into_response(1000)), release);
    assert_eq!(whole.unwrap().unwrap().body(), BODY);
}

#[tokio::test]
async fn a_body_that_is_cut_is_no_whole_one_and_one_that_ends_early_is_no_json() {
    let bed = Bed::new().await;
    for (then, at) in [(Then::Reset, 7), (Then::Close, 7), (Then::Close, 0)] {
        let cut = bed.proxy.inject(Rule::on("POST", "*"), Fault::Body(Where::Byte(at), then));
        lost(&bed.fails(bed.post()).await, Retry::OutcomeUnknown);
        let stream = client().open(bed.post()).await.unwrap();
        let mut came = Vec::new();
        let ended = stream.into_stream().try_for_each(|piece| {
            came.extend_from_slice(&piece);
            std::future::ready(Ok(()))
        });
        lost(&timeout(BOUND, ended).await.unwrap().unwrap_err(), Retry::OutcomeUnknown);
        assert_eq!(came, &BODY.as_bytes()[..usize::try_from(at).unwrap()], "{then:?}");
        assert_eq!(cut.hits(), 2);
        bed.proxy.clear();
    }
    bed.proxy.inject(Rule::on("GET", "*"), Fault::Body(Where::Byte(7), Then::End));
    let response = bed.send(bed.get()).await.unwrap();
    assert_eq!(response.body(), &BODY[..7]);
    let error = response.json::<Value>().unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Protocol, Retry::Never), "{error}");
}

#[tokio::test]
async fn a_body_comes_in_pieces_of_any_size() {
    let bed = Bed::new().await;
    bed.proxy.inject(Rule::on("GET", "*"), Fault::Split(1));
    bed.proxy.inject(Rule::on("POST", "*"), Fault::Drip(5, Duration::from_millis(1)));
    let pieces: Vec<Bytes> = client().open(bed.get()).await.unwrap().try_collect().await.unwrap();
    assert_eq!(pieces.len(), BODY.len(), "each byte by itself, also those of one character");
    assert_eq!(pieces.concat(), BODY.as_bytes());
    let pieces: Vec<Bytes> = client().open(bed.post()).await.unwrap().try_collect().await.unwrap();
    assert!(pieces.len() >= BODY.len().div_ceil(5) && pieces.concat() == BODY.as_bytes());
}

#[tokio::test]
async fn an_answer_is_rewritten_and_a_page_comes_twice() {
    let bed = Bed::new().await;
    let other = Fault::rewrite(|answer| {
        let wrapped = format!("{{\"data\":{}}}", String::from_utf8_lossy(&answer.body));
        answer.with_body(wrapped)
    });
    let rewritten = bed.proxy.inject(Rule::on("GET", "*"), other);
    let whole: Value = bed.send(bed.get()).await.unwrap().json().unwrap();
    assert_eq!(whole["data"][1]["name"], "end");
    assert_eq!(rewritten.hits(), 1);

    bed.server.push(Answer::json(200, &json!(["first"])).with_header("x-next-token", "2"));
    bed.server.push(Answer::json(200, &json!(["second"])));
    bed.proxy.inject(Rule::on("POST", "*"), Fault::repeat());
    for _ in 0..2 {
        let page = bed.send(bed.post()).await.unwrap();
        assert_eq!(page.json::<Value>().unwrap(), json!(["first"]));
        assert_eq!(page.header("x-next-token"), Some("2"));
    }
    assert_eq!(bed.server.requests().len(), 3);
}
