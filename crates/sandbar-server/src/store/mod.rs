//! What belongs to no sandbox: keys, template names, builds and their logs, samples. One `SQLite` file, 0600.

mod idempotency;
mod keys;
mod sandboxes;
mod schema;
mod templates;
mod volumes;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension as _};
use sandbar_core::{Error, ErrorKind, Result};

use crate::seal::{SECRET_BYTES, Seal};

pub(crate) use keys::KeyCache;
pub use keys::{Key, KeyStore, NewKey};
pub(crate) use sandboxes::{Event, Sample, StoredNetwork};
pub(crate) use templates::{
    BuildRow, BuildStatus, Finished, Found, Kind, Level, LogQuery, LogRow, Registration, Removal,
    SnapshotQuery, SnapshotRow, TagRow, TemplateRow,
};
pub(crate) use volumes::VolumeRow;

/// Name of the file in the server's folder.
const FILE: &str = "server.db";

/// The store. Several processes may have it open: `sandbar key` works beside a server.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    connection: Arc<Mutex<Connection>>,
    keys: Arc<KeyCache>,
}

impl Store {
    /// Opens the store in `folder`, and makes both if they are not there.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        let connection = schema::open(&file_in(folder)?)?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)), keys: Arc::default() })
    }

    /// Runs statements in one transaction, away from the threads that answer requests.
    pub(crate) async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let connection = Arc::clone(&self.connection);
        let done = tokio::task::spawn_blocking(move || {
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            let transaction =
                connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
            let value = work(&transaction)?;
            transaction.commit()?;
            Ok(value)
        });
        done.await
            .map_err(|e| {
                Error::new(ErrorKind::Unexpected, "store", "work on the store ended").with_source(e)
            })?
            .map_err(failed)
    }

    /// The secret that all tokens are derived from, made at the first start.
    pub(crate) async fn seal(&self) -> Result<Seal> {
        let fresh = random::<SECRET_BYTES>()?;
        let secret = self.with(move |t| {
            let old = t.query_row("SELECT value FROM secret", [], |row| row.get::<_, [u8; SECRET_BYTES]>(0));
            if let Some(old) = old.optional()? {
                return Ok(old);
            }
            t.execute("INSERT INTO secret (value) VALUES (?1)", [fresh])?;
            Ok(fresh)
        });
        Ok(Seal::new(secret.await?))
    }
}

/// The file, in a folder that is there afterwards and is nobody else's business.
fn file_in(folder: &Path) -> Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|e| {
        let message = format!("can't make the folder `{}`", folder.display());
        Error::new(ErrorKind::Unexpected, "store", message).with_source(e)
    })?;
    Ok(folder.join(FILE))
}

/// An error of the store, which never holds values: statements have them as parameters.
#[allow(clippy::needless_pass_by_value)]
pub(crate) fn failed(error: rusqlite::Error) -> Error {
    Error::new(ErrorKind::Unexpected, "store", "the server's store failed").with_source(error)
}

/// Random bytes of the kernel's.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(|e| {
                Error::new(ErrorKind::Unexpected, "store", "the kernel gave no random bytes").with_source(e)
            })?;
    }
    Ok(bytes)
}
