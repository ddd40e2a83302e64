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
    let file = folder.join(FILE);
    // The folder may be looked into; what is in it may not, nor may others put another store there.
    for (path, forbidden, remedy) in [(folder, 0o022_u32, "chmod go-w"), (file.as_path(), 0o077, "chmod 600")]
    {
        let open_to = match std::fs::metadata(path) {
            Ok(metadata) => metadata.permissions().mode() & 0o777,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) => {
                let message = format!("can't look at `{}`", path.display());
                return Err(Error::new(ErrorKind::Unexpected, "store", message).with_source(e));
            }
        };
        if open_to & forbidden != 0 {
            let message = format!("`{}` is open to others (mode {open_to:03o})", path.display());
            let hint = format!("choose a folder of the server's own, or `{remedy} {}`", path.display());
            return Err(Error::new(ErrorKind::Config, "store", message).with_hint(hint));
        }
    }
    Ok(file)
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_store_that_others_could_read_or_replace_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set(folder.path(), 0o777);
        assert!(Store::open(folder.path()).unwrap_err().hint().unwrap().contains("chmod go-w"));
        set(folder.path(), 0o755);
        drop(Store::open(folder.path()).unwrap());
        set(&folder.path().join(FILE), 0o644);
        assert!(Store::open(folder.path()).unwrap_err().hint().unwrap().contains("chmod 600"));
    }

    #[test]
    fn what_is_no_store_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        std::fs::write(&file, vec![b'x'; 8192]).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let error = Store::open(folder.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.message().contains(FILE) && error.hint().unwrap().contains("backup"), "{error:?}");
    }
}
