use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use sandbar_core::{Error, ErrorKind, Result};

use super::failed;

/// How long to wait for another process that writes.
const BUSY: Duration = Duration::from_secs(5);

/// What each version adds to the one before. Never changed once it has shipped: a later one mends it.
const MIGRATIONS: &[&str] = &[
    "CREATE TABLE secret (value BLOB NOT NULL);
     CREATE TABLE keys (
       id TEXT PRIMARY KEY,
       hash BLOB NOT NULL UNIQUE,
       tenant TEXT NOT NULL,
       name TEXT NOT NULL,
       hint TEXT NOT NULL,
       created_at TEXT NOT NULL
     ) STRICT;",
    // Times are Unix milliseconds.
    "CREATE TABLE sandbox_events (
       sandbox TEXT NOT NULL,
       at INTEGER NOT NULL,
       event TEXT NOT NULL
     ) STRICT;
     CREATE INDEX sandbox_events_by_sandbox ON sandbox_events (sandbox, at);
     CREATE TABLE sandbox_networks (
       sandbox TEXT PRIMARY KEY,
       config TEXT,
       internet INTEGER
     ) STRICT;
     CREATE TABLE sandbox_samples (
       sandbox TEXT NOT NULL,
       at INTEGER NOT NULL,
       cpu_count INTEGER NOT NULL,
       cpu_pct REAL NOT NULL,
       mem_used INTEGER NOT NULL,
       mem_total INTEGER NOT NULL,
       mem_cache INTEGER NOT NULL,
       disk_used INTEGER NOT NULL,
       disk_total INTEGER NOT NULL,
       PRIMARY KEY (sandbox, at)
     ) STRICT, WITHOUT ROWID;
     CREATE INDEX sandbox_samples_by_time ON sandbox_samples (at);
     CREATE TABLE idempotency (
       tenant TEXT NOT NULL,
       key TEXT NOT NULL,
       asked BLOB NOT NULL,
       sandbox TEXT NOT NULL,
       at INTEGER NOT NULL,
       PRIMARY KEY (tenant, key)
     ) STRICT;",
    super::templates::MIGRATION,
];

/// Opens the file and brings it to the newest version.
pub(super) fn open(file: &Path) -> Result<Connection> {
    make_private(file)?;
    let mut connection = Connection::open(file).map_err(failed)?;
    connection.busy_timeout(BUSY).map_err(failed)?;
    connection.pragma_update(None, "journal_mode", "wal").map_err(failed)?;
    connection.pragma_update(None, "synchronous", "normal").map_err(failed)?;
    connection.pragma_update(None, "foreign_keys", true).map_err(failed)?;
    let newest = MIGRATIONS.len();
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(failed)?;
    let version: usize =
        transaction.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)?;
    if version > newest {
        let message = format!("`{}` has version {version}, this program knows {newest}", file.display());
        return Err(Error::new(ErrorKind::Config, "store", message).with_hint("use a newer `sandbar`"));
    }
    for migration in &MIGRATIONS[version..] {
        transaction.execute_batch(migration).map_err(failed)?;
    }
    transaction.pragma_update(None, "user_version", newest).map_err(failed)?;
    transaction.commit().map_err(failed)?;
    Ok(connection)
}

/// Makes the file with mode 0600 before anything is written to it: `SQLite` gives its companions the same. One that is there is not even
/// opened: to close it again would take this process' locks on it, and other processes would take a store in use for one that nobody has.
fn make_private(file: &Path) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    match std::fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(file) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            let message = format!("can't make `{}`", file.display());
            Err(Error::new(ErrorKind::Unexpected, "store", message).with_source(e))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_second_opening_leaves_the_locks_of_the_first() {
        let folder = std::env::temp_dir().join(format!("sandbar-store-locks-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("server.db");
        let _first = open(&file).unwrap();
        let _second = open(&file).unwrap();
        let lock = format!(":{} ", std::fs::metadata(&file).unwrap().ino());
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(locks.contains(&lock), "no lock on the store");
    }
}
