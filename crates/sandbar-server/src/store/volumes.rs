use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, Row, params};
use sandbar_core::Result;

use super::Store;

/// A volume of a tenant's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeRow {
    pub(crate) id: String,
    pub(crate) tenant: String,
    pub(crate) name: String,
}

impl VolumeRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { id: row.get(0)?, tenant: row.get(1)?, name: row.get(2)? })
    }
}

impl Store {
    /// Notes a volume; `false` if the tenant has one of this name, or as many as it may.
    pub(crate) async fn add_volume(&self, volume: VolumeRow, most: usize) -> Result<bool> {
        let now = Timestamp::now().to_string();
        self.with(move |t| {
            let added = t.execute(
                "INSERT INTO volumes (id, tenant, name, created_at) SELECT ?1, ?2, ?3, ?4
                 WHERE (SELECT count(*) FROM volumes WHERE tenant = ?2) < ?5 ON CONFLICT (tenant, name) DO NOTHING",
                params![volume.id, volume.tenant, volume.name, now, most],
            )?;
            Ok(added == 1)
        })
        .await
    }

    /// The tenant's volumes, by name.
    pub(crate) async fn volumes(&self, tenant: &str) -> Result<Vec<VolumeRow>> {
        let tenant = tenant.to_owned();
        self.with(move |t| {
            let mut statement =
                t.prepare("SELECT id, tenant, name FROM volumes WHERE tenant = ?1 ORDER BY name")?;
            let rows = statement.query_map([tenant], VolumeRow::read)?;
            rows.collect()
        })
        .await
    }

    /// The volume of this id, whoever's it is.
    pub(crate) async fn volume(&self, id: &str) -> Result<Option<VolumeRow>> {
        let id = id.to_owned();
        self.with(move |t| {
            t.query_row("SELECT id, tenant, name FROM volumes WHERE id = ?1", [id], VolumeRow::read)
                .optional()
        })
        .await
    }

    /// Forgets a volume.
    pub(crate) async fn remove_volume(&self, id: &str) -> Result<()> {
        let id = id.to_owned();
        self.with(move |t| t.execute("DELETE FROM volumes WHERE id = ?1", [id]).map(drop)).await
    }
}
