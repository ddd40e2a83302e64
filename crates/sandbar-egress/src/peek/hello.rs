use std::fmt;
use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout_at};

use super::client_hello::{ClientHello, HelloFlaw, Peek};

/// Why there is no hello.
#[derive(Debug)]
pub enum PeekError {
    /// It did not come in time.
    TooSlow,
    /// The client ended the connection before.
    Closed,
    /// The connection broke.
    Broken(io::Error),
    /// What came is refused.
    Flaw(HelloFlaw),
}

/// Reads the hello of a TLS client, and with it all that came so far, which belongs before what is read from then on. It is there by the deadline or never,
/// and takes `max` bytes at most.
pub async fn hello(
    stream: &mut (impl AsyncRead + Unpin),
    deadline: Instant,
    max: usize,
) -> Result<(ClientHello, BytesMut), PeekError> {
    let mut bytes = BytesMut::new();
    timeout_at(deadline, async {
        loop {
            match ClientHello::read(&bytes, max) {
                Peek::Done(hello) => return Ok(hello),
                Peek::Bad(flaw) => return Err(PeekError::Flaw(flaw)),
                Peek::NeedMore(needed) => fill(stream, &mut bytes, needed).await?,
            }
        }
    })
    .await
    .unwrap_or(Err(PeekError::TooSlow))
    .map(|hello| (hello, bytes))
}

/// Reads until there are so many bytes.
async fn fill(
    stream: &mut (impl AsyncRead + Unpin),
    bytes: &mut BytesMut,
    needed: usize,
) -> Result<(), PeekError> {
    /// Room for a hello as most clients send it, in one read.
    const ROOM: usize = 2 << 10;
    while bytes.len() < needed {
        bytes.reserve(ROOM);
        match stream.read_buf(bytes).await {
            Ok(0) => return Err(PeekError::Closed),
            Ok(_) => {}
            Err(cause) => return Err(PeekError::Broken(cause)),
        }
    }
    Ok(())
}

impl fmt::Display for PeekError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSlow => f.write_str("the TLS hello did not come in time"),
            Self::Closed => f.write_str("the connection ended before the TLS hello"),
            Self::Broken(_) => f.write_str("read the TLS hello"),
            Self::Flaw(flaw) => flaw.fmt(f),
        }
    }
}

impl std::error::Error for PeekError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Broken(cause) => Some(cause),
            Self::TooSlow | Self::Closed | Self::Flaw(_) => None,
        }
    }
}
