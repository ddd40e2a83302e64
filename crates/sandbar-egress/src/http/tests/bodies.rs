use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::rig::{PATIENCE, Peer, Rig};

const POST: &[u8] = b"POST /up HTTP/1.1\r\nHost: allowed.test\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// More than all buffers on the way hold.
const BIG: usize = 16 << 20;

#[tokio::test]
async fn a_body_arrives_whole_whatever_frames_it() {
    for (framing, sent, arrives) in [
        ("Content-Length: 5\r\n\r\n", "hello", "Content-Length: 5\r\n\r\nhello"),
        ("Transfer-Encoding: chunked\r\n\r\n", "5;x=y\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"),
    ] {
        let mut rig = Rig::new().await;
        let mut client = Peer::new(rig.client());
        client.write(&[POST, framing.as_bytes(), sent.as_bytes()].concat()).await;
        let mut host = rig.accept().await;
        let got = host.until(arrives).await;
        assert!(got.starts_with("POST /up HTTP/1.1\r\n"), "{got}");
        assert_eq!(
            got.to_lowercase().matches("content-length").count()
                + got.to_lowercase().matches("chunked").count(),
            1
        );
        host.write(OK).await;
        client.until("ok").await;
    }
}

#[tokio::test]
async fn a_client_that_waits_is_told_to_go_on() {
    let mut rig = Rig::new().await;
    let mut client = Peer::new(rig.client());
    client.write(&[POST, b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n"].concat()).await;
    assert!(client.head().await.starts_with("HTTP/1.1 100 Continue\r\n"));
    client.write(b"hello").await;
    let mut host = rig.accept().await;
    let got = host.until("hello").await;
    assert!(!got.to_lowercase().contains("expect"), "{got}");
    host.write(OK).await;
    assert!(client.until("ok").await.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn answers_come_as_their_kind_asks() {
    let request = b"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n";
    for (answer, ends, contains) in [
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "ok",
            "200 OK",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            "2\r\nok\r\n0\r\n\r\n",
            "transfer-encoding: chunked",
        ),
        // One of both was wrong.
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            "2\r\nok\r\n0\r\n\r\n",
            "chunked",
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", "\r\n\r\n", "204 No Content"),
        ("HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", "\r\n\r\n", "ETag: x"),
        (
            "HTTP/1.1 302 Found\r\nLocation: http://evil.test/\r\nContent-Length: 0\r\n\r\n",
            "\r\n\r\n",
            "Location: http://evil.test/",
        ),
    ] {
        let mut rig = Rig::new().await;
        let mut client = Peer::new(rig.client());
        client.write(request).await;
        let mut host = rig.accept().await;
        host.head().await;
        host.write(answer.as_bytes()).await;
        let got = client.until(ends).await;
        assert!(got.to_lowercase().contains(&contains.to_lowercase()), "{got}");
        assert!(!got.contains("103") && !got.contains("Content-Length: 1\r\n"), "{got}");
    }
    // The connection's end ends the body, for the client too.
    let mut rig = Rig::new().await;
    let mut client = Peer::new(rig.client());
    client.write(b"GET / HTTP/1.0\r\nHost: allowed.test\r\n\r\n").await;
    let mut host = rig.accept().await;
    host.head().await;
    host.write(b"HTTP/1.0 200 OK\r\n\r\nto the end").await;
    drop(host);
    let got = client.rest().await;
    assert!(got.starts_with("HTTP/1.0 200 OK\r\n") && got.ends_with("\r\n\r\nto the end"), "{got}");
    let mut rig = Rig::new().await;
    let mut client = Peer::new(rig.client());
    client
        .write(b"HEAD / HTTP/1.1\r\nHost: allowed.test\r\n\r\nGET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
        .await;
    let mut host = rig.accept().await;
    assert!(host.head().await.starts_with("HEAD / "));
    host.write(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n").await;
    assert!(client.head().await.contains("Content-Length: 50"));
    assert!(host.head().await.starts_with("GET / "));
    host.write(OK).await;
    assert!(client.until("ok").await.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn an_answer_that_breaks_off_does_not_look_whole() {
    let mut rig = Rig::new().await;
    let mut client = Peer::new(rig.client());
    client.write(b"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await;
    let mut host = rig.accept().await;
    host.head().await;
    host.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n").await;
    drop(host);
    let got = client.rest().await;
    assert!(got.ends_with("2\r\nok\r\n") && !got.contains("\r\n0\r\n"), "{got}");
}

#[tokio::test]
async fn big_bodies_pass_both_ways_and_no_faster_than_they_are_taken() {
    let mut rig = Rig::new().await;
    let client = rig.client();
    let (mut read, mut write) = tokio::io::split(client);
    let sent = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = sent.clone();
    let upload = tokio::spawn(async move {
        write.write_all(&[POST, format!("Content-Length: {BIG}\r\n\r\n").as_bytes()].concat()).await.unwrap();
        for _ in 0..BIG / (64 << 10) {
            write.write_all(&vec![7; 64 << 10]).await.unwrap();
            counter.fetch_add(64 << 10, std::sync::atomic::Ordering::SeqCst);
        }
        write
    });
    let mut host = rig.accept().await;
    host.head().await;
    // Nobody reads: what was sent stops growing at the size of the buffers on the way.
    let mut last = usize::MAX;
    while last != sent.load(std::sync::atomic::Ordering::SeqCst) {
        last = sent.load(std::sync::atomic::Ordering::SeqCst);
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
    assert!(last < BIG, "the whole body was taken and held");
    let mut body = vec![0; 64 << 10];
    let mut total = 0;
    let expected = BIG;
    host.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {BIG}\r\n\r\n").as_bytes()).await;
    let (mut host_read, mut host_write) = host.stream.into_split();
    let download = tokio::spawn(async move {
        for _ in 0..BIG / (64 << 10) {
            host_write.write_all(&vec![9; 64 << 10]).await.unwrap();
        }
        host_write
    });
    let got = tokio::spawn(async move {
        let mut got = Vec::new();
        while got.len() < BIG {
            assert!(timeout(PATIENCE, read.read_buf(&mut got)).await.unwrap().unwrap() > 0);
        }
        got.len()
    });
    // A part of the body may have come with the head.
    while total + (64 << 10) < expected && !upload.is_finished() {
        total += timeout(PATIENCE, host_read.read(&mut body)).await.unwrap().unwrap();
    }
    drop(timeout(PATIENCE, upload).await.unwrap().unwrap());
    assert!(timeout(PATIENCE, got).await.unwrap().unwrap() >= BIG);
    drop(download.await.unwrap());
}

#[tokio::test]
async fn an_early_answer_to_an_upload_reaches_the_client() {
    let mut rig = Rig::new().await;
    let mut client = Peer::new(rig.client());
    client.write(&[POST, b"Content-Length: 1000000\r\n\r\nsome"].concat()).await;
    let mut host = rig.accept().await;
    host.until("some").await;
    host.write(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig").await;
    assert!(client.until("big").await.starts_with("HTTP/1.1 413 Too Large\r\n"));
}
