use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures::io::{AsyncRead, AsyncWrite};
use sandbar_core::{
    Error, ErrorKind, Guest, GuestStream, Metrics, MetricsSample, PortMapping, PortPublication, Ports,
    Result, Retry,
};
use sandbar_guest::Failure;
use tokio::io::ReadBuf;

use super::link::Link;
use crate::ask::{ANSWER, misplaced};
use crate::error::{fail, gone, not_running};
use crate::home::now;
use crate::inside::{Late, Unix};
use crate::shim::AGENT_SOCKET;
use crate::shim::protocol::{Op, PortOrder, Reply};

/// What the agent speaks: Connect with JSON, as envd of this version does.
const PROTOCOL: &str = "connect-json/0.6.13";

#[async_trait]
impl Guest for Link {
    fn protocol(&self) -> &str {
        PROTOCOL
    }

    async fn connect(&self) -> Result<GuestStream> {
        const CONNECT: &str = "connect";
        let folder = self.live(CONNECT).await?;
        match Unix::connect(&folder.socket(AGENT_SOCKET), Late::Refused).await {
            Ok(stream) => Ok(GuestStream::new(Adapter(stream))),
            Err(cause)
                if matches!(
                    cause.kind(),
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset
                ) =>
            {
                Err(self.lost(CONNECT, Failure::Gone).await)
            }
            Err(cause) => Err(self.lost(CONNECT, Failure::Connect(cause)).await),
        }
    }
}

#[async_trait]
impl Ports for Link {
    async fn dial(&self, port: u16) -> Result<GuestStream> {
        const DIAL: &str = "dial";
        check_port(port, DIAL)?;
        match self.ask_shim(|| Op::Dial { port }, ANSWER, DIAL).await? {
            (Reply::Dialled, stream) => Ok(GuestStream::new(Adapter(stream))),
            (Reply::Refused, _) => {
                let message = format!("nothing listens on port {port}");
                Err(fail(sandbar_core::ErrorKind::Unavailable, DIAL, message).with_retry(Retry::Safe))
            }
            _ => Err(misplaced(DIAL)),
        }
    }

    async fn publish_at(&self, port: PortPublication) -> Result<PortMapping> {
        const PUBLISH: &str = "publish";
        port.check(PUBLISH).map_err(|error| error.with_backend(crate::config::BACKEND))?;
        // Shims of earlier versions know the plain question only.
        let op = || match PortOrder::from(port) {
            PortOrder::Anywhere(port) => Op::Publish { port },
            PortOrder::At(at) => Op::PublishAt { at },
        };
        match self.ask_shim(op, ANSWER, PUBLISH).await.map_err(|error| unknown_to_shim(error, self.id()))? {
            (Reply::Published(mapping), _) => Ok(mapping),
            _ => Err(misplaced(PUBLISH)),
        }
    }

    async fn unpublish(&self, port: u16) -> Result<bool> {
        const UNPUBLISH: &str = "unpublish";
        check_port(port, UNPUBLISH)?;
        let op = || Op::Unpublish { port };
        match self.ask_shim(op, ANSWER, UNPUBLISH).await.map_err(|error| unknown_to_shim(error, self.id()))? {
            (Reply::Unpublished { was_published }, _) => Ok(was_published),
            _ => Err(misplaced(UNPUBLISH)),
        }
    }

    async fn published(&self) -> Result<Vec<PortMapping>> {
        const LIST: &str = "list ports";
        // Who answers serves them. Where nobody does, somebody else may listen at the addresses that the record has.
        let (Reply::Hello { .. }, _) = self.ask_shim(|| Op::Hello, ANSWER, LIST).await? else {
            return Err(misplaced(LIST));
        };
        let seen = self.inner().look(self.id(), LIST)?.ok_or_else(|| gone(LIST, self.id().as_str()))?;
        match seen.state() {
            sandbar_core::State::Running => Ok(seen.served_ports()),
            state => Err(not_running(LIST, self.id().as_str(), state, seen.record.reason.as_deref())),
        }
    }
}

#[async_trait]
impl Metrics for Link {
    async fn sample(&self) -> Result<MetricsSample> {
        const MEASURE: &str = "measure";
        let (Reply::Stats(usage), _) = self.ask_shim(|| Op::Stats, ANSWER, MEASURE).await? else {
            return Err(misplaced(MEASURE));
        };
        let limits =
            self.inner().look(self.id(), MEASURE)?.map(|seen| seen.record.limits).unwrap_or_default();
        let limit = |name: &str| limits.get(name).and_then(|limit| limit.value);
        #[expect(
            clippy::cast_precision_loss,
            reason = "microseconds and thousandths of a core are far below 2^52"
        )]
        let (cpu_seconds, cpu_count) =
            (usage.cpu_usec.map(|usec| usec as f64 / 1e6), limit("cpu").map(|millis| millis as f64 / 1e3));
        Ok(MetricsSample {
            at: now(),
            cpu_seconds,
            cpu_count: cpu_count.or_else(host_cores),
            memory_bytes: usage.memory_bytes,
            memory_peak_bytes: usage.memory_peak_bytes,
            memory_limit_bytes: limit("memory"),
            disk_bytes: usage.disk_bytes,
            processes: usage.processes,
        })
    }
}

/// Without a limit, a sandbox may use every core of the machine.
fn host_cores() -> Option<f64> {
    std::thread::available_parallelism().ok().and_then(|cores| u32::try_from(cores.get()).ok()).map(f64::from)
}

/// A shim of an earlier version does not know every question.
fn unknown_to_shim(error: Error, id: &sandbar_core::SandboxId) -> Error {
    if error.kind() != ErrorKind::Protocol {
        return error;
    }
    error.with_hint(format!(
        "if an earlier version of `sandbar` made sandbox `{id}`, its shim can't do this: make the sandbox again"
    ))
}

fn check_port(port: u16, operation: &'static str) -> Result<()> {
    if port == 0 {
        let error = Error::invalid(operation, "port 0 is not valid: expected 1 to 65535");
        return Err(error.with_backend(crate::config::BACKEND));
    }
    Ok(())
}

/// A Tokio stream in the contract's clothes.
#[derive(Debug)]
struct Adapter<S>(S);

impl<S: tokio::io::AsyncRead + Unpin> AsyncRead for Adapter<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(buf);
        match Pin::new(&mut self.0).poll_read(cx, &mut buf) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(buf.filled().len())),
            Poll::Ready(Err(cause)) => Poll::Ready(Err(cause)),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: tokio::io::AsyncWrite + Unpin> AsyncWrite for Adapter<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
