//! What is done to sandboxes, told.
//!
//! [`Observed`] is a provider over any other. It does what the other does and, as its [`Observation`] says, writes each operation to an
//! [`AuditLog`], passes a W3C trace context on to the commands inside, and hands finished spans to a [`SpanSink`]. What stands in the record is in
//! `docs/audit.md`.
//!
//! ```
//! use sandbar_core::{Command, CreateOptions, MemoryProvider, SandboxProvider};
//! use sandbar_observe::{AuditConfig, AuditLog, AuditReader, Observation, Observed};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("audit.jsonl");
//! let log = AuditLog::open(AuditConfig::new(&path))?;
//! let provider = Observed::new(MemoryProvider::new(), Observation::new().with_audit(log));
//! let sandbox = provider.create(CreateOptions::new()).await?;
//! sandbox.commands().run(&Command::new("true")).await?;
//!
//! let mut reader = AuditReader::open(&path)?;
//! let mut operations = Vec::new();
//! while let Some(line) = reader.next_line()? {
//!     operations.extend(line.event().map(|event| event.op.to_string()));
//! }
//! assert_eq!(operations, ["create", "create", "run", "run"]);
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "otlp")]
mod env;
mod event;
mod log;
mod observed;
#[cfg(feature = "otlp")]
pub mod otlp;
mod read;
mod span;
mod trace;

pub use event::{Actor, Event, FORMAT_VERSION, Outcome, Phase, Role, details, is_dangerous, to_safe_json};
pub use log::{
    AuditConfig, AuditLog, AuditMode, DEFAULT_KEEP, DEFAULT_MAX_BYTES, MAX_KEEP, MAX_LINE, MIN_MAX_BYTES,
};
pub use observed::{Arguments, Observation, Observed, current_actor};
pub use read::{AuditReader, Line};
pub use span::{FinishedSpan, SpanSink};
pub use trace::{SpanContext, SpanId, TraceContext, TraceId, TraceState};
