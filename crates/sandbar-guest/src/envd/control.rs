use async_trait::async_trait;
use bytes::Bytes;
use sandbar_core::{ProcessControl, PtySize, Result, Signal};

use super::EnvdClient;
use super::refusal::too_old;
use crate::control::{self, Handle};

/// How to talk to one process.
#[derive(Debug)]
pub(super) struct Control<'a> {
    inner: control::Control<'a>,
}

impl<'a> Control<'a> {
    /// To one with pipes.
    pub(super) fn pipes(client: &'a EnvdClient, pid: u32) -> Self {
        Self { inner: control::Control::pipes(&client.guest, pid) }
    }

    pub(super) async fn write_all(&self, bytes: Bytes) -> Result<()> {
        self.inner.write_all(bytes).await
    }

    pub(super) async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

/// As [`Control`], for handles that live on their own.
#[derive(Debug)]
pub(super) struct Held {
    client: EnvdClient,
    inner: Handle,
}

impl Held {
    pub(super) fn new(client: EnvdClient, pid: u32, terminal: bool) -> Self {
        let inner = Handle { client: client.guest.clone(), pid, terminal };
        Self { client, inner }
    }
}

#[async_trait]
impl ProcessControl for Held {
    async fn write(&self, bytes: Bytes) -> Result<()> {
        self.inner.write(bytes).await
    }

    async fn close_stdin(&self) -> Result<()> {
        const CLOSE: &str = "close standard input";
        let version = self.client.version(CLOSE).await?;
        if !self.inner.terminal && !version.closes_stdin() {
            let operation = self.client.guest.operation(CLOSE);
            return Err(too_old(operation, "the end of a standard input", version));
        }
        self.inner.close_stdin().await
    }

    async fn resize(&self, size: PtySize) -> Result<()> {
        self.inner.resize(size).await
    }

    async fn signal(&self, signal: Signal) -> Result<bool> {
        let operation = self.client.guest.operation("signal");
        self.client.signal_started(self.inner.pid, signal, operation).await
    }
}
