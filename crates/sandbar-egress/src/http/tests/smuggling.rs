use sandbar_core::DecisionReason;

use super::rig::{Peer, Rig};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// What the host outside gets of these bytes, and how many requests it answered.
async fn arrives(sent: &[u8]) -> (String, Vec<DecisionReason>) {
    let mut rig = Rig::new().await;
    let client = rig.client();
    let (mut read, mut write) = tokio::io::split(client);
    tokio::io::AsyncWriteExt::write_all(&mut write, sent).await.unwrap();
    tokio::io::AsyncWriteExt::shutdown(&mut write).await.unwrap();
    let answers = tokio::spawn(async move { tokio::io::copy(&mut read, &mut tokio::io::sink()).await });
    let host = async {
        let mut host = rig.accept().await;
        let mut got = host.head().await;
        host.write(OK).await;
        got += &host.rest().await;
        got
    };
    let got = tokio::select! {
        got = host => got,
        // It ended without a connection outside.
        _ = answers => String::new(),
    };
    (got, rig.told().iter().map(|(_, reason)| *reason).collect())
}

#[tokio::test]
async fn a_request_behind_a_body_never_arrives_unjudged() {
    let evil = "GET /evil HTTP/1.1\r\nHost: evil.test\r\n\r\n";
    for first in [
        // The length counts, and what is behind it is judged.
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        // A body that names its own end in the words of others.
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n0\r\n\r\n\r\n0\r\n\r\n",
    ] {
        let (got, told) = arrives(format!("{first}{evil}").as_bytes()).await;
        assert!(!got.contains("evil"), "{first:?}: {got}");
        assert_eq!(told.last(), Some(&DecisionReason::NameMismatch), "{first:?}");
    }
}

#[tokio::test]
async fn a_message_that_has_two_ends_does_not_go_out() {
    let evil = "GET /evil HTTP/1.1\r\nHost: evil.test\r\n\r\n";
    for first in [
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: xchunked\r\nContent-Length: 0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nX: y\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nX: y\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 0\r\nContent-Length: 43\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: allowed.test\n\r\n",
    ] {
        let (got, told) = arrives(format!("{first}{evil}").as_bytes()).await;
        assert_eq!(got, "", "{first:?}");
        assert_eq!(told, [DecisionReason::Malformed], "{first:?}");
    }
}

#[tokio::test]
async fn a_chunk_that_lies_ends_the_request() {
    let evil = "GET /evil HTTP/1.1\r\nHost: evil.test\r\n\r\n";
    for body in [
        "0\r\nContent-Length: 9\r\n\r\n",
        "3\r\nabcdef\r\n0\r\n\r\n",
        "0\n\n",
        "fffffffffffffffff\r\n",
        "1;\n2\r\na\r\n0\r\n\r\n",
    ] {
        let sent = format!(
            "POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n{body}{evil}"
        );
        let mut rig = Rig::new().await;
        let mut client = Peer::new(rig.client());
        client.write(sent.as_bytes()).await;
        let got = rig.accept().await.rest().await;
        assert!(!got.contains("evil") && !got.ends_with("0\r\n\r\n"), "{body:?}: {got}");
        client.rest().await;
        let told: Vec<_> = rig.told().iter().map(|(_, reason)| *reason).collect();
        assert!(told.contains(&DecisionReason::Malformed), "{body:?}: {told:?}");
    }
}

#[tokio::test]
async fn requests_in_one_go_are_answered_in_order() {
    let mut rig = Rig::new().await;
    let mut client = Peer::new(rig.client());
    let request = |n| format!("POST /{n} HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 1\r\n\r\n{n}");
    let requests = (0..5).map(request).collect::<Vec<_>>().concat();
    client.write(requests.as_bytes()).await;
    let mut host = rig.accept().await;
    for n in 0..5 {
        let head = host.head().await;
        assert!(head.starts_with(&format!("POST /{n} ")), "{head}");
        host.until(&n.to_string()).await;
        host.write(format!("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n<{n}>").as_bytes()).await;
        client.until(&format!("<{n}>")).await;
    }
    assert_eq!(rig.dials(), 1);
}
