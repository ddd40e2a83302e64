//! Who gives up waiting leaves nothing open, and who reads slowly is not taken for a server that is silent.

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::{client, config};
use futures::{StreamExt, stream};
use sandbar_core::ErrorKind;
use sandbar_http::testing::{Answer, Fault, FaultProxy, Rule, Scripted, Then, Where};
use sandbar_http::{Client, Request};
use tokio::time::timeout;

const BOUND: Duration = Duration::from_secs(60);

async fn bed() -> (Scripted, FaultProxy, String) {
    let server = Scripted::answering(|_| Answer::status(200).with_body("0123456789")).await;
    let proxy = FaultProxy::start(server.address()).await;
    let url = proxy.url();
    (server, proxy, url)
}

#[tokio::test]
async fn a_call_that_is_given_up_closes_its_connection() {
    let (_server, proxy, url) = bed().await;
    let held = proxy.inject(Rule::on("GET", "*"), Fault::StallAfter);
    let client = client();
    let mut call = Box::pin(client.send(Request::get("get", &url)));
    tokio::select! {
        _ = &mut call => panic!("it is being held"),
        () = held.until_hit(1) => (),
    }
    assert_eq!(proxy.open_connections(), 1);
    drop(call);
    timeout(BOUND, proxy.until_open(0)).await.expect("the connection is closed");
}

#[tokio::test]
async fn a_stream_that_is_dropped_closes_its_connection_also_while_it_is_read() {
    let (_server, proxy, url) = bed().await;
    proxy.inject(Rule::on("GET", "*"), Fault::Body(Where::Byte(4), Then::Stall));
    let client = client();
    for has_read in [false, true] {
        let mut stream = client.open(Request::get("get", &url)).await.unwrap();
        if has_read {
            assert_eq!(stream.next().await.unwrap().unwrap(), "0123");
        }
        drop(stream);
        timeout(BOUND, proxy.until_open(0)).await.expect("the connection is closed");
    }
    // One that was read to its end is used again.
    for _ in 0..2 {
        assert_eq!(client.send(Request::post("post", &url)).await.unwrap().body(), "0123456789");
        assert_eq!(proxy.open_connections(), 1);
    }
}

#[tokio::test]
async fn an_upload_that_is_given_up_drops_what_it_was_sending() {
    let (_server, proxy, url) = bed().await;
    let held = std::sync::Arc::new(());
    let guard = held.clone();
    let body = stream::once(async { Ok(Bytes::from_static(b"begun")) }).chain(stream::once(async move {
        std::future::pending::<()>().await;
        drop(guard);
        Ok(Bytes::new())
    }));
    let error = client()
        .send(
            Request::put("put", &url)
                .with_stream(body.boxed(), None)
                .with_timeout(Duration::from_millis(200)),
        )
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    timeout(BOUND, async {
        while std::sync::Arc::strong_count(&held) > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the stream is dropped");
    timeout(BOUND, proxy.until_open(0)).await.expect("the connection is closed");
}

#[tokio::test]
async fn an_upload_is_late_only_when_it_stands_still() {
    let (server, _proxy, url) = bed().await;
    let pause = Duration::from_millis(60);
    let body = stream::unfold(0, move |sent| async move {
        if sent == 10 {
            return None;
        }
        tokio::time::sleep(pause).await;
        Some((Ok(Bytes::from_static(b"x")), sent + 1))
    });
    // Altogether it takes longer than the timeout, and no piece of it does.
    let request = Request::put("put", &url).with_stream(body.boxed(), None).with_timeout(pause * 8);
    assert_eq!(client().send(request).await.unwrap().status(), 200);
    assert_eq!(server.requests()[0].body.len(), 10);
}

#[tokio::test]
async fn who_reads_slowly_is_not_told_that_the_server_is_silent() {
    let (_server, proxy, url) = bed().await;
    proxy.inject(Rule::on("*", "*"), Fault::Split(5));
    let idle = Duration::from_millis(500);
    let mut stream = client().open(Request::get("get", &url).with_idle_timeout(idle)).await.unwrap();
    let mut read = 0;
    while let Some(piece) = stream.next().await {
        read += piece.expect("all of it is there").len();
        tokio::time::sleep(idle * 2).await;
    }
    assert_eq!(read, 10);
}

#[tokio::test]
async fn a_connection_that_does_not_come_about_is_late() {
    // A listener whose queue is full answers nothing.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(Ok(stream)) =
        timeout(Duration::from_millis(300), tokio::net::TcpStream::connect(address)).await
    {
        queued.push(stream);
    }
    let client = Client::new(config().with_connect_timeout(Duration::from_millis(50))).unwrap();
    let error = client.send(Request::post("make", format!("http://{address}/"))).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.retry()),
        (ErrorKind::Unavailable, sandbar_core::Retry::Safe),
        "{error:?}"
    );
    assert!(error.message().contains("took too long"), "{error}");
}
