use rusqlite::Row;
use rusqlite::types::Type;

/// A template of a tenant's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TemplateRow {
    pub(crate) id: String,
    pub(crate) name: Option<String>,
    pub(crate) kind: Kind,
    pub(crate) created_at: String,
    pub(crate) updated_at: String,
    pub(crate) spawn_count: i64,
    pub(crate) last_spawned_at: Option<String>,
}

impl TemplateRow {
    pub(super) const COLUMNS: &str = "id, name, kind, created_at, updated_at, spawn_count, last_spawned_at";

    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            name: row.get(1)?,
            kind: word(row, 2, Kind::parse)?,
            created_at: row.get(3)?,
            updated_at: row.get(4)?,
            spawn_count: row.get(5)?,
            last_spawned_at: row.get(6)?,
        })
    }
}

/// Where a template comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Builds.
    Build,
    /// Snapshots of sandboxes.
    Snapshot,
}

impl Kind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Snapshot => "snapshot",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Build, Self::Snapshot].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BuildRow {
    pub(crate) id: String,
    pub(crate) template: String,
    pub(crate) status: BuildStatus,
    /// The provider's template that it makes; empty once that is doomed.
    pub(crate) provider: String,
    /// Tags that it gets when it is ready.
    pub(crate) tags: Vec<String>,
    pub(crate) cpu_count: Option<u32>,
    pub(crate) memory_mb: Option<u64>,
    pub(crate) free_disk_mb: Option<u64>,
    /// Who runs commands of its sandboxes.
    pub(crate) user: Option<String>,
    /// Where they run.
    pub(crate) workdir: Option<String>,
    pub(crate) size_bytes: Option<u64>,
    pub(crate) reason: Option<String>,
    pub(crate) reason_step: Option<String>,
    pub(crate) created_at: String,
    pub(crate) updated_at: String,
    pub(crate) finished_at: Option<String>,
    /// Of which sandbox it is a snapshot, if it is one.
    pub(crate) sandbox: Option<String>,
}

impl BuildRow {
    pub(super) const COLUMNS: &str = "id, template, status, provider, tags, cpu_count, memory_mb, free_disk_mb, user, workdir, size_bytes, \
         reason, reason_step, created_at, updated_at, finished_at, sandbox";

    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let tags: String = row.get(4)?;
        Ok(Self {
            id: row.get(0)?,
            template: row.get(1)?,
            status: word(row, 2, BuildStatus::parse)?,
            provider: row.get(3)?,
            tags: serde_json::from_str(&tags)
                .map_err(|e| rusqlite::Error::FromSqlConversionFailure(4, Type::Text, Box::new(e)))?,
            cpu_count: row.get(5)?,
            memory_mb: row.get::<_, Option<i64>>(6)?.map(i64::unsigned_abs),
            free_disk_mb: row.get::<_, Option<i64>>(7)?.map(i64::unsigned_abs),
            user: row.get(8)?,
            workdir: row.get(9)?,
            size_bytes: row.get::<_, Option<i64>>(10)?.map(i64::unsigned_abs),
            reason: row.get(11)?,
            reason_step: row.get(12)?,
            created_at: row.get(13)?,
            updated_at: row.get(14)?,
            finished_at: row.get(15)?,
            sandbox: row.get(16)?,
        })
    }
}

/// A tag of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TagRow {
    pub(crate) tag: String,
    pub(crate) build: String,
    pub(crate) created_at: String,
}

impl TagRow {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { tag: row.get(0)?, build: row.get(1)?, created_at: row.get(2)? })
    }
}

/// A snapshot: a tag of a template that was taken of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotRow {
    pub(crate) template: String,
    pub(crate) name: Option<String>,
    pub(crate) tag: String,
    pub(crate) created_at: String,
}

impl SnapshotRow {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { template: row.get(0)?, name: row.get(1)?, tag: row.get(2)?, created_at: row.get(3)? })
    }

    /// Where it stands in the list.
    pub(crate) fn position(&self) -> (String, String) {
        (self.created_at.clone(), format!("{}:{}", self.template, self.tag))
    }
}

/// How a build is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BuildStatus {
    /// Registered; its files may be on their way.
    Waiting,
    /// Started.
    Building,
    /// Done.
    Ready,
    /// Failed.
    Error,
}

impl BuildStatus {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Building => "building",
            Self::Ready => "ready",
            Self::Error => "error",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Waiting, Self::Building, Self::Ready, Self::Error].into_iter().find(|s| s.as_str() == text)
    }
}

/// A template, and the build that was asked for, if it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) template: TemplateRow,
    pub(crate) build: Option<BuildRow>,
}

fn word<T>(row: &Row<'_>, index: usize, parse: impl Fn(&str) -> Option<T>) -> rusqlite::Result<T> {
    let text: String = row.get(index)?;
    parse(&text).ok_or_else(|| {
        let why = format!("`{text}` is no word that this program knows");
        rusqlite::Error::FromSqlConversionFailure(index, Type::Text, why.into())
    })
}
