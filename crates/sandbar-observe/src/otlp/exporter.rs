use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use sandbar_core::{Error, ErrorKind, Result};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval_at, timeout};

use super::client::{Client, check_endpoint};
use super::convert::convert;
use crate::{FinishedSpan, SpanSink};

/// The name of the service where the environment gives none.
const SERVICE: &str = "sandbar";
/// Spans that may wait to be sent: what the specification proposes for a queue.
const QUEUE: usize = 2048;
/// Spans sent at once: what the specification proposes.
const BATCH: usize = 512;
/// Longest time that a span waits for others: what the specification proposes.
const INTERVAL: Duration = Duration::from_secs(5);
/// How long sending may take, with attempts: what the specification proposes.
const EXPORT: Duration = Duration::from_secs(10);

/// Where spans go, where that is not for the environment to say.
#[derive(Clone, Default)]
pub struct OtlpConfig {
    /// The whole URL to send to, such as `http://127.0.0.1:4318/v1/traces`.
    pub traces_endpoint: Option<String>,
    /// Headers to send, beside those of the environment; they may be secrets.
    pub headers: Vec<(String, String)>,
}

/// Sends spans as they end, some at a time. Ends with this value, and so do spans that wait: see [`OtlpExporter::flush`].
pub struct OtlpExporter {
    queue: mpsc::Sender<Message>,
    unsent: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

enum Message {
    Span(Box<FinishedSpan>),
    Flush(oneshot::Sender<()>),
}

impl OtlpExporter {
    /// Starts it; has to be called in a Tokio runtime. An endpoint that can't work is an error; one that does not answer is not.
    pub fn start(config: OtlpConfig) -> Result<Self> {
        let OtlpConfig { traces_endpoint, headers } = config;
        let environment = crate::env::collector();
        let endpoint = traces_endpoint.as_ref().or(environment.as_ref());
        check_endpoint(endpoint.map_or("http://localhost:4318", String::as_str))?;
        let mut builder = SpanExporter::builder().with_http().with_http_client(Client).with_timeout(EXPORT);
        if let Some(endpoint) = traces_endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if !headers.is_empty() {
            builder = builder.with_headers(headers.into_iter().collect());
        }
        // Its text may hold what the environment says, headers included.
        let mut exporter = builder.build().map_err(|_| {
            Error::new(
                ErrorKind::Config,
                "export spans",
                "the exporter does not take the settings of the environment",
            )
            .with_hint("see that the `OTEL_EXPORTER_OTLP_…` variables are well-formed")
        })?;
        exporter.set_resource(&resource());
        let unsent = Arc::new(AtomicU64::new(0));
        let (queue, messages) = mpsc::channel(QUEUE);
        let task = tokio::spawn(send(exporter, messages, Arc::clone(&unsent)));
        Ok(Self { queue, unsent, task })
    }

    /// Sends what waits, for at most `bound`, and answers how many spans could not be sent so far.
    pub async fn flush(&self, bound: Duration) -> u64 {
        let (done, flushed) = oneshot::channel();
        let flush = async {
            if self.queue.send(Message::Flush(done)).await.is_ok() {
                let _ = flushed.await;
            }
        };
        let in_time = timeout(bound, flush).await.is_ok();
        // Those that are still on their way are not sent as far as anybody can tell.
        let waiting = if in_time { 0 } else { self.waiting() };
        self.unsent.load(Ordering::Relaxed).saturating_add(waiting)
    }

    fn waiting(&self) -> u64 {
        let queued = self.queue.max_capacity() - self.queue.capacity();
        u64::try_from(queued).unwrap_or(u64::MAX).max(1)
    }
}

impl SpanSink for OtlpExporter {
    fn take(&self, span: FinishedSpan) {
        if self.queue.try_send(Message::Span(Box::new(span))).is_err() {
            self.unsent.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for OtlpExporter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the environment says of this service, and its name where it says none.
fn resource() -> Resource {
    let found = Resource::builder().build();
    let name = opentelemetry::Key::from_static_str("service.name");
    let named = found.get(&name).is_some_and(|value| !value.as_str().starts_with("unknown_service"));
    if named { found } else { Resource::builder().with_service_name(SERVICE).build() }
}

async fn send(exporter: SpanExporter, mut messages: mpsc::Receiver<Message>, unsent: Arc<AtomicU64>) {
    let mut batch: Vec<SpanData> = Vec::new();
    let mut clock = interval_at(Instant::now() + INTERVAL, INTERVAL);
    loop {
        tokio::select! {
            message = messages.recv() => match message {
                Some(Message::Span(span)) => {
                    batch.push(convert(*span));
                    if batch.len() >= BATCH {
                        export(&exporter, &mut batch, &unsent).await;
                    }
                }
                Some(Message::Flush(done)) => {
                    export(&exporter, &mut batch, &unsent).await;
                    let _ = done.send(());
                }
                None => return,
            },
            _ = clock.tick() => export(&exporter, &mut batch, &unsent).await,
        }
    }
}

async fn export(exporter: &SpanExporter, batch: &mut Vec<SpanData>, unsent: &AtomicU64) {
    if batch.is_empty() {
        return;
    }
    let spans = std::mem::take(batch);
    let count = u64::try_from(spans.len()).unwrap_or(u64::MAX);
    if !matches!(timeout(EXPORT, exporter.export(spans)).await, Ok(Ok(()))) {
        unsent.fetch_add(count, Ordering::Relaxed);
    }
}

impl fmt::Debug for OtlpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("OtlpConfig").field("headers", &names).finish_non_exhaustive()
    }
}

impl fmt::Debug for OtlpExporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtlpExporter").field("unsent", &self.unsent).finish_non_exhaustive()
    }
}
