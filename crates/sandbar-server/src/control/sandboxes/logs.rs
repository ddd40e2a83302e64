use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use futures::TryStreamExt as _;
use jiff::Timestamp;
use sandbar_core::{ErrorKind, LogEvent, LogOptions, LogStream, Sandbox};
use sandbar_wire::e2b::{LogLevel, LogLine, SandboxLogEntry, SandboxLogs, SandboxLogsV2};
use serde::Deserialize;
use serde_json::json;

use crate::app::App;
use crate::control::extract::{PathId, Query};
use crate::error::{ApiError, ApiResult};
use crate::tenant::Tenant;

/// Most entries of one answer, and how many there are where nothing is said: E2B's limit.
const MAX_ENTRIES: usize = 1000;

/// Longest search text, in bytes.
const MAX_SEARCH: usize = 256;

/// Longest line that is kept whole, in bytes; the rest of a longer one is the next.
const MAX_LINE: usize = 64 << 10;

#[derive(Debug, Deserialize)]
pub(super) struct OldQuery {
    /// Unix milliseconds.
    start: Option<i64>,
    limit: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct LogQuery {
    /// Unix milliseconds.
    cursor: Option<i64>,
    limit: Option<i64>,
    direction: Option<String>,
    level: Option<String>,
    search: Option<String>,
}

/// An entry before it is written out.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    at: i64,
    level: LogLevel,
    message: String,
    /// The name of a field and its value: where it comes from.
    field: (&'static str, String),
}

/// `GET /sandboxes/{id}/logs`
pub(super) async fn v1(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    PathId(id): PathId,
    Query(query): Query<OldQuery>,
) -> ApiResult<axum::Json<SandboxLogs>> {
    let limit = limit(query.limit)?;
    let mut entries = app.log_entries(&tenant, &id).await?;
    entries.retain(|entry| query.start.is_none_or(|start| entry.at >= start));
    entries.truncate(limit);
    let log_entries: Vec<_> = entries.into_iter().map(written).collect();
    let logs = log_entries.iter().map(old_line).collect();
    Ok(axum::Json(SandboxLogs { logs, log_entries }))
}

/// `GET /v2/sandboxes/{id}/logs`
pub(super) async fn v2(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    PathId(id): PathId,
    Query(query): Query<LogQuery>,
) -> ApiResult<axum::Json<SandboxLogsV2>> {
    let limit = limit(query.limit)?;
    let is_forward = match query.direction.as_deref() {
        None | Some("forward") => true,
        Some("backward") => false,
        Some(other) => {
            let message = format!("direction \"{other}\" is not valid: expected \"forward\" or \"backward\"");
            return Err(ApiError::bad_request(message));
        }
    };
    let least = query.level.as_deref().map(level).transpose()?;
    let search = query.search.as_deref().unwrap_or_default();
    if search.len() > MAX_SEARCH {
        return Err(ApiError::bad_request(format!("search is longer than {MAX_SEARCH} bytes")));
    }
    let mut entries = app.log_entries(&tenant, &id).await?;
    entries.retain(|entry| least.is_none_or(|least| entry.level >= least) && entry.message.contains(search));
    Ok(axum::Json(SandboxLogsV2 {
        logs: select(entries, query.cursor, is_forward, limit).into_iter().map(written).collect(),
    }))
}

impl App {
    /// All that is kept of a sandbox, oldest first.
    async fn log_entries(&self, tenant: &Tenant, id: &str) -> ApiResult<Vec<Entry>> {
        let known = self.sandbox(tenant, id).await?;
        let happened = self.store.events(&known.record.id).await?;
        let mut entries: Vec<_> = happened
            .into_iter()
            .map(|(at, event)| Entry {
                at,
                level: LogLevel::Info,
                message: format!("sandbox {event}"),
                field: ("event", event),
            })
            .collect();
        entries.extend(said(&*known.sandbox).await?);
        entries.sort_by_key(|entry| entry.at);
        Ok(entries)
    }
}

/// The output of the main command, if there is one.
async fn said(sandbox: &dyn Sandbox) -> ApiResult<Vec<Entry>> {
    let Some(main) = sandbox.main_command() else { return Ok(Vec::new()) };
    let logs = match main.logs(LogOptions::default()).await {
        Ok(logs) => logs,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    Ok(lines(logs.try_collect::<Vec<_>>().await?))
}

/// Lines of both streams, each with the time of its first piece.
fn lines(events: Vec<LogEvent>) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut open: [(i64, Vec<u8>); 2] = Default::default();
    let mut last = 0;
    for event in events {
        match event {
            LogEvent::Output(chunk) => {
                last = chunk.at.as_millisecond();
                let (started, pending) = &mut open[usize::from(chunk.stream == LogStream::Stderr)];
                for part in chunk.bytes.split_inclusive(|byte| *byte == b'\n') {
                    if pending.is_empty() {
                        *started = last;
                    }
                    pending.extend_from_slice(part);
                    if part.ends_with(b"\n") || pending.len() >= MAX_LINE {
                        entries.push(line(*started, chunk.stream, pending));
                        pending.clear();
                    }
                }
            }
            LogEvent::Lost(bytes) => entries.push(Entry {
                at: last,
                level: LogLevel::Warn,
                message: format!("{bytes} bytes of output are not kept"),
                field: ("event", "lost".to_owned()),
            }),
            _ => {}
        }
    }
    for (stream, (started, pending)) in [LogStream::Stdout, LogStream::Stderr].into_iter().zip(&open) {
        if !pending.is_empty() {
            entries.push(line(*started, stream, pending));
        }
    }
    entries
}

fn line(at: i64, stream: LogStream, bytes: &[u8]) -> Entry {
    let (level, name) = match stream {
        LogStream::Stdout => (LogLevel::Info, "stdout"),
        LogStream::Stderr => (LogLevel::Warn, "stderr"),
    };
    let message = String::from_utf8_lossy(bytes).trim_end_matches(['\n', '\r']).to_owned();
    Entry { at, level, message, field: ("stream", name.to_owned()) }
}

/// From the cursor on, or from it back with the newest first.
fn select(mut entries: Vec<Entry>, cursor: Option<i64>, is_forward: bool, limit: usize) -> Vec<Entry> {
    if is_forward {
        entries.retain(|entry| cursor.is_none_or(|cursor| entry.at >= cursor));
    } else {
        entries.retain(|entry| cursor.is_none_or(|cursor| entry.at <= cursor));
        entries.reverse();
    }
    entries.truncate(limit);
    entries
}

fn written(entry: Entry) -> SandboxLogEntry {
    let at = Timestamp::from_millisecond(entry.at).unwrap_or(Timestamp::UNIX_EPOCH);
    let (name, value) = entry.field;
    SandboxLogEntry {
        timestamp: at.to_string(),
        message: entry.message,
        level: entry.level,
        fields: BTreeMap::from([(name.to_owned(), value)]),
    }
}

/// A line of the older form is a JSON text itself, of which clients read these.
fn old_line(entry: &SandboxLogEntry) -> LogLine {
    let logger = entry.fields.get("stream").map_or("sandbox", String::as_str);
    let line = json!({"level": entry.level, "logger": logger, "message": entry.message, "timestamp": entry.timestamp});
    LogLine { timestamp: entry.timestamp.clone(), line: line.to_string() }
}

fn limit(asked: Option<i64>) -> ApiResult<usize> {
    let Some(asked) = asked else { return Ok(MAX_ENTRIES) };
    usize::try_from(asked).ok().filter(|limit| *limit <= MAX_ENTRIES).ok_or_else(|| {
        ApiError::bad_request(format!(
            "limit {asked} is not valid: expected a number from 0 to {MAX_ENTRIES}"
        ))
    })
}

fn level(text: &str) -> ApiResult<LogLevel> {
    match text {
        "debug" => Ok(LogLevel::Debug),
        "info" => Ok(LogLevel::Info),
        "warn" => Ok(LogLevel::Warn),
        "error" => Ok(LogLevel::Error),
        other => Err(ApiError::bad_request(format!(
            "level \"{other}\" is not valid: expected \"debug\", \"info\", \"warn\" or \"error\""
        ))),
    }
}

#[cfg(test)]
mod tests {
    use sandbar_core::LogChunk;

    use super::*;

    fn chunk(second: i64, stream: LogStream, text: &'static str) -> LogEvent {
        let at = Timestamp::from_second(second).unwrap();
        LogEvent::Output(LogChunk { at, stream, bytes: text.as_bytes().into() })
    }

    #[test]
    fn lines_of_two_streams_are_not_mixed() {
        let said = lines(vec![
            chunk(1, LogStream::Stdout, "one\ntw"),
            chunk(2, LogStream::Stderr, "bad\n"),
            LogEvent::Lost(7),
            chunk(3, LogStream::Stdout, "o\nrest"),
        ]);
        let shown: Vec<_> = said.iter().map(|entry| (entry.at, entry.message.as_str())).collect();
        assert_eq!(
            shown,
            [
                (1000, "one"),
                (2000, "bad"),
                (2000, "7 bytes of output are not kept"),
                (1000, "two"),
                (3000, "rest")
            ]
        );
        assert_eq!(said[1].level, LogLevel::Warn);
    }

    #[test]
    fn a_cursor_goes_both_ways() {
        let entries = || {
            lines(vec![
                chunk(1, LogStream::Stdout, "a\n"),
                chunk(2, LogStream::Stdout, "b\n"),
                chunk(3, LogStream::Stdout, "c\n"),
            ])
        };
        let shown = |cursor, is_forward, limit| {
            let chosen = select(entries(), cursor, is_forward, limit);
            chosen.into_iter().map(|entry| entry.message).collect::<String>()
        };
        assert_eq!(shown(None, true, 9), "abc");
        assert_eq!(shown(Some(2000), true, 9), "bc");
        assert_eq!(shown(Some(2000), false, 9), "ba");
        assert_eq!(shown(None, false, 1), "c");
    }
}
