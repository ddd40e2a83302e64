//! What is remembered of sandboxes beside their labels: what happened to them, what was said of their network, and what they used.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use rusqlite::OptionalExtension as _;
use sandbar_core::{Result, SandboxId};

use super::Store;

/// Most events that are kept of one sandbox: the oldest go first.
const MAX_EVENTS: i64 = 1000;

/// How long a sample is kept, in milliseconds: the longest range that is shown in buckets below a quarter of an hour.
const SAMPLES_KEPT: i64 = 7 * 24 * 3600 * 1000;

/// How long after its last event what is remembered of a sandbox that is gone is kept, in milliseconds. One in the making is not listed yet and has
/// events of its own by then.
const GRACE: i64 = 5 * 60 * 1000;

/// What happened to a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Created,
    Forked,
    Paused,
    Resumed,
    TimeoutSet,
    NetworkSet,
}

impl Event {
    fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Forked => "forked",
            Self::Paused => "paused",
            Self::Resumed => "resumed",
            Self::TimeoutSet => "timeout set",
            Self::NetworkSet => "network set",
        }
    }
}

/// What a sandbox used at one moment. Sizes are bytes; 0 where it can't be measured, since E2B's form has no other word for that.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// Unix milliseconds.
    pub(crate) at: i64,
    pub(crate) cpu_count: u32,
    pub(crate) cpu_pct: f64,
    pub(crate) mem_used: u64,
    pub(crate) mem_total: u64,
    pub(crate) mem_cache: u64,
    pub(crate) disk_used: u64,
    pub(crate) disk_total: u64,
}

/// What was said of a sandbox' network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredNetwork {
    /// JSON, without secrets.
    pub(crate) config: Option<String>,
    pub(crate) internet: Option<bool>,
}

impl Store {
    /// Notes that something happened now.
    pub(crate) async fn note(&self, sandbox: &SandboxId, event: Event) -> Result<()> {
        let (id, at) = (sandbox.to_string(), Timestamp::now().as_millisecond());
        self.with(move |t| insert_event(t, &id, at, event)).await
    }

    /// Notes that a sandbox was made, and what was said of its network.
    pub(crate) async fn note_made(
        &self,
        sandbox: &SandboxId,
        event: Event,
        network: StoredNetwork,
    ) -> Result<()> {
        let (id, at) = (sandbox.to_string(), Timestamp::now().as_millisecond());
        self.with(move |t| {
            insert_event(t, &id, at, event)?;
            put_network(t, &id, &network)
        })
        .await
    }

    /// What happened, oldest first, with its time in Unix milliseconds.
    pub(crate) async fn events(&self, sandbox: &SandboxId) -> Result<Vec<(i64, String)>> {
        let id = sandbox.to_string();
        self.with(move |t| {
            let mut rows = t.prepare_cached(
                "SELECT at, event FROM sandbox_events WHERE sandbox = ?1 ORDER BY at, rowid",
            )?;
            rows.query_map([id], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
        .await
    }

    /// Since when each runs or sleeps, as far as that was noted: by id, whether it is asleep and since when in Unix milliseconds.
    pub(crate) async fn turns(&self, ids: Vec<String>) -> Result<HashMap<String, (bool, i64)>> {
        self.with(move |t| {
            let mut newest = t.prepare_cached(
                "SELECT event = 'paused', at FROM sandbox_events
                 WHERE sandbox = ?1 AND event IN ('created', 'forked', 'paused', 'resumed')
                 ORDER BY at DESC, rowid DESC LIMIT 1",
            )?;
            let mut turns = HashMap::new();
            for id in ids {
                let turn = newest.query_row([&id], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
                if let Some(turn) = turn {
                    turns.insert(id, turn);
                }
            }
            Ok(turns)
        })
        .await
    }

    /// What was said of the network.
    pub(crate) async fn network(&self, sandbox: &SandboxId) -> Result<StoredNetwork> {
        let id = sandbox.to_string();
        self.with(move |t| {
            let row = t
                .query_row("SELECT config, internet FROM sandbox_networks WHERE sandbox = ?1", [id], |row| {
                    Ok(StoredNetwork { config: row.get(0)?, internet: row.get(1)? })
                })
                .optional()?;
            Ok(row.unwrap_or_default())
        })
        .await
    }

    /// Remembers what was said of the network from now on.
    pub(crate) async fn set_network(&self, sandbox: &SandboxId, network: StoredNetwork) -> Result<()> {
        let (id, at) = (sandbox.to_string(), Timestamp::now().as_millisecond());
        self.with(move |t| {
            insert_event(t, &id, at, Event::NetworkSet)?;
            put_network(t, &id, &network)
        })
        .await
    }

    /// Forgets a sandbox that is gone.
    pub(crate) async fn forget(&self, sandbox: &SandboxId) -> Result<()> {
        let id = sandbox.to_string();
        self.with(move |t| delete(t, &id)).await
    }

    /// Forgets those that are not among `alive`, which was the whole list at `listed_at` (Unix milliseconds), and samples that are too old.
    pub(crate) async fn sweep(&self, alive: HashSet<String>, listed_at: i64) -> Result<()> {
        self.with(move |t| {
            let ids: Vec<String> = t
                .prepare_cached("SELECT sandbox FROM sandbox_events GROUP BY sandbox HAVING MAX(at) < ?1")?
                .query_map([listed_at - GRACE], |row| row.get(0))?
                .collect::<rusqlite::Result<_>>()?;
            for id in ids.iter().filter(|id| !alive.contains(*id)) {
                delete(t, id)?;
            }
            t.execute("DELETE FROM sandbox_samples WHERE at < ?1", [listed_at - SAMPLES_KEPT])?;
            Ok(())
        })
        .await
    }

    /// Keeps samples.
    pub(crate) async fn add_samples(&self, samples: Vec<(String, Sample)>) -> Result<()> {
        self.with(move |t| {
            let mut insert = t.prepare_cached(
                "INSERT OR REPLACE INTO sandbox_samples
                   (sandbox, at, cpu_count, cpu_pct, mem_used, mem_total, mem_cache, disk_used, disk_total)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?;
            for (id, s) in samples {
                insert.execute((
                    id,
                    s.at,
                    s.cpu_count,
                    s.cpu_pct,
                    signed(s.mem_used),
                    signed(s.mem_total),
                    signed(s.mem_cache),
                    signed(s.disk_used),
                    signed(s.disk_total),
                ))?;
            }
            Ok(())
        })
        .await
    }

    /// The samples from `start` to `end`, both included and in Unix milliseconds, oldest first.
    pub(crate) async fn samples(&self, sandbox: &SandboxId, start: i64, end: i64) -> Result<Vec<Sample>> {
        let id = sandbox.to_string();
        self.with(move |t| {
            let mut rows = t.prepare_cached(&format!(
                "{SELECT_SAMPLE} WHERE sandbox = ?1 AND at BETWEEN ?2 AND ?3 ORDER BY at"
            ))?;
            rows.query_map((id, start, end), sample)?.collect()
        })
        .await
    }

    /// The newest sample of each.
    pub(crate) async fn newest_samples(&self, ids: Vec<String>) -> Result<Vec<(String, Sample)>> {
        self.with(move |t| {
            let mut newest =
                t.prepare_cached(&format!("{SELECT_SAMPLE} WHERE sandbox = ?1 ORDER BY at DESC LIMIT 1"))?;
            let mut found = Vec::new();
            for id in ids {
                if let Some(sample) = newest.query_row([&id], sample).optional()? {
                    found.push((id, sample));
                }
            }
            Ok(found)
        })
        .await
    }
}

const SELECT_SAMPLE: &str =
    "SELECT at, cpu_count, cpu_pct, mem_used, mem_total, mem_cache, disk_used, disk_total
     FROM sandbox_samples";

fn sample(row: &rusqlite::Row<'_>) -> rusqlite::Result<Sample> {
    let unsigned =
        |index: usize| row.get::<_, i64>(index).map(|value| u64::try_from(value).unwrap_or_default());
    Ok(Sample {
        at: row.get(0)?,
        cpu_count: row.get(1)?,
        cpu_pct: row.get(2)?,
        mem_used: unsigned(3)?,
        mem_total: unsigned(4)?,
        mem_cache: unsigned(5)?,
        disk_used: unsigned(6)?,
        disk_total: unsigned(7)?,
    })
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn insert_event(t: &rusqlite::Transaction<'_>, id: &str, at: i64, event: Event) -> rusqlite::Result<()> {
    t.prepare_cached("INSERT INTO sandbox_events (sandbox, at, event) VALUES (?1, ?2, ?3)")?.execute((
        id,
        at,
        event.as_str(),
    ))?;
    t.prepare_cached(
        "DELETE FROM sandbox_events WHERE sandbox = ?1 AND rowid NOT IN
           (SELECT rowid FROM sandbox_events WHERE sandbox = ?1 ORDER BY rowid DESC LIMIT ?2)",
    )?
    .execute((id, MAX_EVENTS))?;
    Ok(())
}

fn put_network(t: &rusqlite::Transaction<'_>, id: &str, network: &StoredNetwork) -> rusqlite::Result<()> {
    if *network == StoredNetwork::default() {
        t.execute("DELETE FROM sandbox_networks WHERE sandbox = ?1", [id])?;
    } else {
        t.execute(
            "INSERT OR REPLACE INTO sandbox_networks (sandbox, config, internet) VALUES (?1, ?2, ?3)",
            (id, &network.config, network.internet),
        )?;
    }
    Ok(())
}

fn delete(t: &rusqlite::Transaction<'_>, id: &str) -> rusqlite::Result<()> {
    for table in ["sandbox_events", "sandbox_networks", "sandbox_samples"] {
        t.execute(&format!("DELETE FROM {table} WHERE sandbox = ?1"), [id])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        (folder, store)
    }

    #[tokio::test]
    async fn a_turn_is_the_newest_of_those_that_change_it() {
        let (_folder, store) = store();
        let id = SandboxId::new("s1").unwrap();
        store.note_made(&id, Event::Created, StoredNetwork::default()).await.unwrap();
        store.note(&id, Event::Paused).await.unwrap();
        store.note(&id, Event::NetworkSet).await.unwrap();
        let turns = store.turns(vec!["s1".into(), "s2".into()]).await.unwrap();
        assert!(turns["s1"].0 && turns.len() == 1);
        store.note(&id, Event::Resumed).await.unwrap();
        assert!(!store.turns(vec!["s1".into()]).await.unwrap()["s1"].0);
        let words: Vec<_> = store.events(&id).await.unwrap().into_iter().map(|(_, word)| word).collect();
        assert_eq!(words, ["created", "paused", "network set", "resumed"]);
    }

    #[tokio::test]
    async fn what_is_gone_is_swept_but_not_what_was_just_made() {
        let (_folder, store) = store();
        let (old, new) = (SandboxId::new("s1").unwrap(), SandboxId::new("s2").unwrap());
        let said = StoredNetwork { config: Some("{}".into()), internet: Some(false) };
        store.note_made(&old, Event::Created, said.clone()).await.unwrap();
        store.add_samples(vec![("s1".into(), Sample { at: 7, ..Sample::default() })]).await.unwrap();
        let now = Timestamp::now().as_millisecond();
        // In its grace.
        store.sweep(HashSet::new(), now).await.unwrap();
        assert_eq!(store.network(&old).await.unwrap(), said);
        store.note(&new, Event::Created).await.unwrap();
        store.sweep(HashSet::from(["s2".into()]), now + GRACE + 60_000).await.unwrap();
        assert_eq!(store.network(&old).await.unwrap(), StoredNetwork::default());
        assert_eq!(store.events(&new).await.unwrap().len(), 1);
        assert!(store.events(&old).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn samples_come_back_as_they_were() {
        let (_folder, store) = store();
        let id = SandboxId::new("s1").unwrap();
        let at = |at| Sample {
            at,
            cpu_count: 2,
            cpu_pct: 12.5,
            mem_used: 3,
            disk_total: u64::MAX,
            ..Sample::default()
        };
        let samples = (0..5).map(|n| ("s1".to_owned(), at(n * 5000)));
        store.add_samples(samples.collect()).await.unwrap();
        let read = store.samples(&id, 5000, 15_000).await.unwrap();
        assert_eq!(read.iter().map(|s| s.at).collect::<Vec<_>>(), [5000, 10_000, 15_000]);
        assert_eq!((read[0].cpu_count, read[0].mem_used), (2, 3));
        assert_eq!(store.newest_samples(vec!["s1".into(), "s2".into()]).await.unwrap()[0].1.at, 20_000);
    }
}
