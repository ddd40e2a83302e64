use rusqlite::{Row, params};
use sandbar_core::Result;

use super::{now, stored_time};
use crate::store::Store;

/// A word of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogRow {
    pub(crate) at: String,
    pub(crate) level: Level,
    pub(crate) step: Option<String>,
    pub(crate) message: String,
}

impl LogRow {
    pub(crate) fn new(level: Level, step: Option<String>, message: String) -> Self {
        Self { at: now(), level, step, message }
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let level: String = row.get(1)?;
        Ok(Self {
            at: row.get(0)?,
            level: Level::parse(&level).unwrap_or(Level::Info),
            step: row.get(2)?,
            message: row.get(3)?,
        })
    }
}

/// How much a word matters, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

impl Level {
    const ALL: [Self; 4] = [Self::Debug, Self::Info, Self::Warn, Self::Error];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == text)
    }
}

/// Which words of a build.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogQuery {
    /// So many of those that match are left out.
    pub(crate) offset: usize,
    pub(crate) limit: usize,
    /// The least level.
    pub(crate) level: Level,
    /// Whether the last ones come first.
    pub(crate) newest_first: bool,
    /// Only those from this time on, or until it where the last ones come first.
    pub(crate) from: Option<jiff::Timestamp>,
}

impl Store {
    /// Adds to the log of a build. Nothing is added to one that was deleted.
    pub(crate) async fn log_build(&self, build: &str, words: Vec<LogRow>) -> Result<()> {
        let build = build.to_owned();
        self.with(move |t| {
            let exists: i64 = t.query_row("SELECT count(*) FROM builds WHERE id = ?1", [&build], |r| r.get(0))?;
            if exists == 0 {
                return Ok(());
            }
            let sql = "SELECT coalesce(max(number), 0) FROM build_logs WHERE build = ?1";
            let last: i64 = t.query_row(sql, [&build], |row| row.get(0))?;
            let mut statement = t.prepare_cached(
                "INSERT INTO build_logs (build, number, at, level, step, message) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?;
            for (number, word) in (last + 1..).zip(words) {
                statement.execute(params![
                    build,
                    number,
                    word.at,
                    word.level.as_str(),
                    word.step,
                    word.message
                ])?;
            }
            Ok(())
        })
        .await
    }

    /// Words of a build.
    pub(crate) async fn build_logs(&self, build: &str, query: LogQuery) -> Result<Vec<LogRow>> {
        let build = build.to_owned();
        self.with(move |t| {
            let levels: Vec<_> =
                Level::ALL.into_iter().filter(|level| *level >= query.level).map(Level::as_str).collect();
            let sql = format!(
                "SELECT at, level, step, message FROM build_logs WHERE build = ?1
                 AND level IN (SELECT value FROM json_each(?2)) AND (?5 IS NULL OR at {} ?5) ORDER BY number {} LIMIT ?3 OFFSET ?4",
                if query.newest_first { "<=" } else { ">=" },
                if query.newest_first { "DESC" } else { "ASC" }
            );
            let mut statement = t.prepare(&sql)?;
            let from = query.from.map(stored_time);
            let levels = serde_json::Value::from(levels).to_string();
            let rows =
                statement.query_map(params![build, levels, query.limit, query.offset, from], LogRow::read)?;
            rows.collect()
        })
        .await
    }
}
