use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures::io::{AsyncRead, AsyncWrite};

use crate::Result;

/// A two-way byte stream.
pub trait GuestIo: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> GuestIo for T {}

/// A connection into a sandbox.
pub struct GuestStream(Box<dyn GuestIo>);

impl GuestStream {
    /// Wraps a connection.
    pub fn new(io: impl GuestIo + 'static) -> Self {
        Self(Box::new(io))
    }
}

impl fmt::Debug for GuestStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GuestStream")
    }
}

impl AsyncRead for GuestStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for GuestStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_close(cx)
    }
}

/// A byte tunnel to the guest's own API, so that a server can pass requests through without knowing the backend.
#[async_trait]
pub trait Guest: Send + Sync {
    /// The protocol that the guest speaks, with its version, such as `connect-json/0.6.13`.
    fn protocol(&self) -> &str;

    /// Opens a connection to it.
    async fn connect(&self) -> Result<GuestStream>;
}
