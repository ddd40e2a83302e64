mod deny;
mod limits;
mod names;
mod pass;
mod policy;

use std::io::ErrorKind;
use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::testing::PATIENCE;

/// How soon a refusal must be felt.
const AT_ONCE: std::time::Duration = std::time::Duration::from_secs(1);

/// Waits for the end, and tells whether it was a reset.
async fn is_reset(stream: &mut TcpStream) -> bool {
    let start = Instant::now();
    let mut buffer = [0; 64];
    let read = timeout(PATIENCE, stream.read(&mut buffer)).await.unwrap();
    assert!(start.elapsed() < AT_ONCE, "it took {:?}", start.elapsed());
    match read {
        Ok(0) => false,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
        Ok(length) => panic!("it says {:?}", &buffer[..length]),
    }
}

/// Everything until the end.
async fn all(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.unwrap().unwrap();
    bytes
}

/// What arrives at a host that takes one connection and answers nothing.
async fn arrives(listener: &tokio::net::TcpListener, expected: &[u8]) -> TcpStream {
    let (mut stream, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    let mut bytes = vec![0; expected.len()];
    timeout(PATIENCE, stream.read_exact(&mut bytes)).await.unwrap().unwrap();
    assert_eq!(bytes, expected);
    stream
}

/// A round trip, after which both directions are known to work.
async fn echoes(inside: &mut TcpStream, outside: &mut TcpStream) {
    says(inside, outside).await;
    says(outside, inside).await;
}

async fn says(from: &mut TcpStream, to: &mut TcpStream) {
    from.write_all(b"there").await.unwrap();
    let mut bytes = [0; 5];
    timeout(PATIENCE, to.read_exact(&mut bytes)).await.unwrap().unwrap();
    assert_eq!(&bytes, b"there");
}

const PUBLIC: Ipv4Addr = Ipv4Addr::new(93, 184, 215, 14);
