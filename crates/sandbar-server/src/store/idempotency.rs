use jiff::Timestamp;
use rusqlite::OptionalExtension as _;
use sandbar_core::{Result, SandboxId};

use super::Store;

/// How long a key is remembered, in milliseconds: a day, far longer than any client tries again.
const KEPT: i64 = 24 * 3600 * 1000;

/// What was made with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    /// The hash of what was asked for.
    pub(crate) asked: [u8; 32],
    /// Id of what came of it.
    pub(crate) sandbox: String,
}

impl Store {
    /// What a tenant made with this key.
    pub(crate) async fn made_with(&self, tenant: &str, key: &str) -> Result<Option<Made>> {
        let (tenant, key) = (tenant.to_owned(), key.to_owned());
        let since = Timestamp::now().as_millisecond() - KEPT;
        self.with(move |t| {
            t.query_row(
                "SELECT asked, sandbox FROM idempotency WHERE tenant = ?1 AND key = ?2 AND at >= ?3",
                (tenant, key, since),
                |row| Ok(Made { asked: row.get(0)?, sandbox: row.get(1)? }),
            )
            .optional()
        })
        .await
    }

    /// Remembers what came of a key, and forgets those of long ago.
    pub(crate) async fn remember_made(
        &self,
        tenant: &str,
        key: &str,
        asked: [u8; 32],
        sandbox: &SandboxId,
    ) -> Result<()> {
        let (tenant, key, sandbox) = (tenant.to_owned(), key.to_owned(), sandbox.to_string());
        let now = Timestamp::now().as_millisecond();
        self.with(move |t| {
            t.execute("DELETE FROM idempotency WHERE at < ?1", [now - KEPT])?;
            t.execute(
                "INSERT OR REPLACE INTO idempotency (tenant, key, asked, sandbox, at) VALUES (?1, ?2, ?3, ?4, ?5)",
                (tenant, key, asked, sandbox, now),
            )?;
            Ok(())
        })
        .await
    }
}
