//! What belongs to no sandbox: keys, template names, builds and their logs, samples. One `SQLite` file, 0600.

mod idempotency;
mod keys;
mod sandboxes;
mod schema;
mod templates;
mod volumes;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _};
use sandbar_core::{Error, ErrorKind, Result, Retry};

use crate::seal::{SECRET_BYTES, Seal};

pub(crate) use keys::KeyCache;
pub use keys::{Key, KeyStore, NewKey};
pub(crate) use sandboxes::{Event, Sample, StoredNetwork};
pub(crate) use templates::{
    BuildRow, BuildStatus, Finished, Kind, Level, LogQuery, LogRow, Registration, Removal, SnapshotQuery,
    SnapshotRow, TagRow, TemplateRow,
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
        let file = file_in(folder)?;
        let connection = schema::open(&file).map_err(|error| {
            let message = format!("{} (`{}`)", error.message(), file.display());
            let told = Error::new(error.kind(), "store", message);
            let told = match error.hint() {
                Some(hint) => told.with_hint(hint.to_owned()),
                None => told,
            };
            told.with_source(error)
        })?;
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

    /// The secret that all tokens are derived from, made at the first start, and whether this is that.
    pub(crate) async fn seal(&self) -> Result<(Seal, bool)> {
        let fresh = random::<SECRET_BYTES>()?;
        let secret = self.with(move |t| {
            let old = t.query_row("SELECT value FROM secret", [], |row| row.get::<_, [u8; SECRET_BYTES]>(0));
            if let Some(old) = old.optional()? {
                return Ok((old, false));
            }
            t.execute("INSERT INTO secret (value) VALUES (?1)", [fresh])?;
            Ok((fresh, true))
        });
        let (secret, is_new) = secret.await?;
        Ok((Seal::new(secret), is_new))
    }
}

/// The file, in a folder that is there afterwards and is nobody else's business.
fn file_in(folder: &Path) -> Result<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|e| {
        let message = format!("can't make the folder `{}`", folder.display());
        Error::new(ErrorKind::Unexpected, "store", message).with_source(e)
    })?;
    let metadata = std::fs::metadata(folder).map_err(|e| {
        let message = format!("can't look at the folder `{}`", folder.display());
        Error::new(ErrorKind::Unexpected, "store", message).with_source(e)
    })?;
    let open_to = metadata.permissions().mode() & 0o777;
    if open_to & 0o077 != 0 {
        let message = format!("`{}` is open to others (mode {open_to:03o})", folder.display());
        let hint = format!("choose a folder of the server's own, or `chmod 700 {}`", folder.display());
        return Err(Error::new(ErrorKind::Config, "store", message).with_hint(hint));
    }
    Ok(folder.join(FILE))
}

/// How long whoever finds the store held by somebody else is to wait.
const HELD: Duration = Duration::from_secs(2);

/// An error of the store, which never holds values: statements have them as parameters.
#[allow(clippy::needless_pass_by_value)]
pub(crate) fn failed(error: rusqlite::Error) -> Error {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked, DiskFull, NotADatabase};
    let new = |kind, message: &str| Error::new(kind, "store", message);
    let told = match error.sqlite_error_code() {
        Some(DatabaseBusy | DatabaseLocked) => {
            let message = "somebody else holds the server's store, such as a backup";
            new(ErrorKind::Unavailable, message).with_retry(Retry::After(HELD))
        }
        Some(DiskFull) => new(ErrorKind::Unexpected, "there is no disk space for the server's store"),
        Some(NotADatabase) => new(ErrorKind::Config, "the server's store is damaged, or no store").with_hint(
            "restore it from a backup; or move it away, with which keys, tokens and templates' names are lost",
        ),
        _ => new(ErrorKind::Unexpected, "the server's store failed"),
    };
    told.with_source(error)
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
