use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rusqlite::OptionalExtension as _;
use sandbar_core::{Error, ErrorKind, Result};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::{Store, random};
use crate::seal::hex;
use crate::tenant::Tenant;

/// What a key begins with: what older SDKs ask for.
const PREFIX: &str = "e2b_";

/// Random bytes of a key: 160 bits, forty hexadecimal digits, the form of E2B's own.
const KEY_BYTES: usize = 20;

/// Random bytes of the id of a key or tenant.
const ID_BYTES: usize = 6;

/// Longest name of a key, in bytes.
const MAX_NAME: usize = 100;

/// How long a key that was found is not looked up again: as long may a removed one still work in a server that runs.
const CACHED: Duration = Duration::from_secs(2);

/// Most keys that are remembered.
const MAX_CACHED: usize = 10_000;

/// A key, without what it is proved by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Key {
    /// Its id.
    pub id: String,
    /// Whose it is: keys of one tenant see the same sandboxes.
    pub tenant: String,
    /// A name, for people.
    pub name: String,
    /// Its last four digits, to tell it from others.
    pub hint: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A key that was just made: the only time that its text is known.
#[derive(Clone)]
pub struct NewKey {
    /// What is known of it afterwards.
    pub key: Key,
    /// Its text.
    pub text: String,
}

impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewKey").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Keys that were found a moment ago, by the hash of their text.
#[derive(Debug, Default)]
pub(crate) struct KeyCache(Mutex<HashMap<[u8; 32], (Instant, Tenant)>>);

/// The keys of a server's store, for whoever administers it.
#[derive(Debug)]
pub struct KeyStore(Store);

impl KeyStore {
    /// Opens the store in a server's folder, and makes it if it is not there.
    pub fn open(folder: &Path) -> Result<Self> {
        Ok(Self(Store::open(folder)?))
    }

    /// Makes a key: of `tenant`, or of a tenant of its own.
    pub async fn create(&self, name: &str, tenant: Option<&str>) -> Result<NewKey> {
        if name.len() > MAX_NAME || name.chars().any(char::is_control) {
            let message = format!(
                "the name is not valid: expected at most {MAX_NAME} bytes without control characters"
            );
            return Err(Error::invalid("create a key", message));
        }
        let text = format!("{PREFIX}{}", hex(&random::<KEY_BYTES>()?));
        let fresh = format!("t{}", hex(&random::<ID_BYTES>()?));
        let key = Key {
            id: format!("k{}", hex(&random::<ID_BYTES>()?)),
            tenant: tenant.map_or(fresh, str::to_owned),
            name: name.to_owned(),
            hint: text[text.len() - 4..].to_owned(),
            created_at: Timestamp::now(),
        };
        let (hash, row, asked) = (digest(&text), key.clone(), tenant.map(str::to_owned));
        let is_made = self.0.with(move |t| {
            if let Some(asked) = asked {
                let known: Option<i64> = t
                    .query_row("SELECT 1 FROM keys WHERE tenant = ?1 LIMIT 1", [asked], |r| r.get(0))
                    .optional()?;
                if known.is_none() {
                    return Ok(false);
                }
            }
            t.execute(
                "INSERT INTO keys (id, hash, tenant, name, hint, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                (row.id, hash, row.tenant, row.name, row.hint, row.created_at.to_string()),
            )?;
            Ok(true)
        });
        if !is_made.await? {
            let what = format!("tenant `{}`", key.tenant);
            return Err(
                Error::not_found("create a key", what).with_hint("`sandbar key ls` shows those there are")
            );
        }
        Ok(NewKey { key, text })
    }

    /// All keys, oldest first.
    pub async fn list(&self) -> Result<Vec<Key>> {
        let rows = self.0.with(|t| {
            let mut statement =
                t.prepare("SELECT id, tenant, name, hint, created_at FROM keys ORDER BY created_at, id")?;
            let rows = statement.query_map([], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get::<_, String>(4)?))
            })?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        });
        let keys = rows.await?.into_iter().map(|(id, tenant, name, hint, created_at)| {
            let created_at = created_at.parse().map_err(|e| {
                Error::new(ErrorKind::Unexpected, "list keys", "a key has no valid date").with_source(e)
            })?;
            Ok(Key { id, tenant, name, hint, created_at })
        });
        keys.collect()
    }

    /// Takes a key back; `false` means that there is none of this id. A server that runs takes it for up to two seconds more.
    pub async fn remove(&self, id: &str) -> Result<bool> {
        let id = id.to_owned();
        self.0.with(move |t| Ok(t.execute("DELETE FROM keys WHERE id = ?1", [id])? > 0)).await
    }
}

impl Store {
    /// Whose key this is; `None` if it is nobody's.
    pub(crate) async fn tenant_of(&self, text: &str) -> Result<Option<Tenant>> {
        // The hash is what is compared: how long that takes says nothing of the text.
        let hash = digest(text);
        if let Some(tenant) = self.keys.get(&hash) {
            return Ok(Some(tenant));
        }
        let found = self.with(move |t| {
            let row = t.query_row("SELECT tenant, id FROM keys WHERE hash = ?1", [hash], |row| {
                Ok(Tenant { id: row.get(0)?, key: row.get(1)? })
            });
            row.optional()
        });
        let found = found.await?;
        if let Some(tenant) = &found {
            self.keys.put(hash, tenant.clone());
        }
        Ok(found)
    }
}

impl KeyCache {
    fn get(&self, hash: &[u8; 32]) -> Option<Tenant> {
        let keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        keys.get(hash).filter(|(at, _)| at.elapsed() < CACHED).map(|(_, tenant)| tenant.clone())
    }

    fn put(&self, hash: [u8; 32], tenant: Tenant) {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.len() >= MAX_CACHED {
            keys.clear();
        }
        keys.insert(hash, (Instant::now(), tenant));
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_opens_its_tenant_until_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let keys = KeyStore::open(&folder.path().join("server")).unwrap();
        let first = keys.create("first", None).await.unwrap();
        let second = keys.create("second", None).await.unwrap();
        let shared = keys.create("shared", Some(&first.key.tenant)).await.unwrap();
        assert_ne!(first.key.tenant, second.key.tenant);
        assert_eq!(keys.create("x", Some("nobody")).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(keys.list().await.unwrap(), [first.key.clone(), second.key, shared.key.clone()]);

        let store = Store::open(&folder.path().join("server")).unwrap();
        let of = |text: &str| {
            let (store, text) = (store.clone(), text.to_owned());
            async move { store.tenant_of(&text).await.unwrap().map(|tenant| tenant.id) }
        };
        assert_eq!(of(&shared.text).await, Some(first.key.tenant.clone()));
        assert_eq!(of("e2b_0000").await, None);
        assert!(keys.remove(&first.key.id).await.unwrap());
        assert!(!keys.remove(&first.key.id).await.unwrap());
        assert_eq!(of(&first.text).await, None);
        assert!(!format!("{first:?}").contains(&first.text));
    }

    #[tokio::test]
    async fn nobody_else_reads_the_store_and_no_key_stands_in_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let keys = KeyStore::open(folder.path()).unwrap();
        let made = keys.create("", None).await.unwrap();
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077, 0, "{:?}", entry.file_name());
            let bytes = std::fs::read(entry.path()).unwrap();
            assert!(!bytes.windows(made.text.len()).any(|window| window == made.text.as_bytes()));
        }
    }
}
