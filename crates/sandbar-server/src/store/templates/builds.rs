use rusqlite::{OptionalExtension as _, Transaction, params};
use sandbar_core::Result;

use super::find::template_of;
use super::now;
use super::rows::{BuildRow, BuildStatus, Kind, TemplateRow};
use crate::control::Reference;
use crate::store::Store;

/// Builds of one template that are kept; older ones that no tag names are forgotten, with their logs.
const KEPT_BUILDS: usize = 50;

/// What a build is registered with.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub(crate) tenant: String,
    /// Id of the template, if it is new.
    pub(crate) fresh_template: String,
    /// Its name; `None` for a snapshot without one, which is always a new template.
    pub(crate) reference: Option<Reference>,
    pub(crate) kind: Kind,
    /// Id of the build.
    pub(crate) build: String,
    pub(crate) status: BuildStatus,
    /// The provider's template that it makes.
    pub(crate) provider: String,
    pub(crate) tags: Vec<String>,
    pub(crate) sandbox: Option<String>,
    pub(crate) cpu_count: Option<u32>,
    pub(crate) memory_mb: Option<u64>,
    pub(crate) free_disk_mb: Option<u64>,
    pub(crate) user: Option<String>,
    pub(crate) workdir: Option<String>,
    /// Most templates that the tenant may have.
    pub(crate) most: usize,
}

/// What a build that succeeded says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Finished {
    pub(crate) user: Option<String>,
    pub(crate) workdir: Option<String>,
    pub(crate) size_bytes: Option<u64>,
}

impl Store {
    /// Registers a build, of a template of this name or of a new one; `None` if the tenant has as many as it may.
    pub(crate) async fn register_build(&self, new: Registration) -> Result<Option<TemplateRow>> {
        let now = now();
        self.with(move |t| {
            let known = match &new.reference {
                Some(reference) => template_of(t, &new.tenant, reference)?,
                None => None,
            };
            let id = match &known {
                Some(template) => template.id.clone(),
                None => new.fresh_template.clone(),
            };
            if known.is_some() {
                let turned = if new.kind == Kind::Build { new.kind.as_str() } else { "" };
                t.execute(
                    "UPDATE templates SET updated_at = ?2, kind = CASE ?3 WHEN '' THEN kind ELSE ?3 END WHERE id = ?1",
                    params![id, now, turned],
                )?;
            } else {
                let count: i64 =
                    t.query_row("SELECT count(*) FROM templates WHERE tenant = ?1", [&new.tenant], |r| r.get(0))?;
                if usize::try_from(count).unwrap_or(usize::MAX) >= new.most {
                    return Ok(None);
                }
                let name = new.reference.as_ref().map(|reference| reference.name.clone());
                t.execute(
                    "INSERT INTO templates (id, tenant, name, kind, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?5)",
                    params![id, new.tenant, name, new.kind.as_str(), now],
                )?;
            }
            t.execute(
                "INSERT INTO builds (id, template, status, provider, tags, sandbox, cpu_count, memory_mb, free_disk_mb,
                                     user, workdir, created_at, updated_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?12)",
                params![
                    new.build,
                    id,
                    new.status.as_str(),
                    new.provider,
                    serde_json::Value::from(new.tags).to_string(),
                    new.sandbox,
                    new.cpu_count,
                    new.memory_mb.map(signed),
                    new.free_disk_mb.map(signed),
                    new.user,
                    new.workdir,
                    now,
                ],
            )?;
            forget_old(t, &id)?;
            let sql = format!("SELECT {} FROM templates WHERE id = ?1", TemplateRow::COLUMNS);
            t.query_row(&sql, [&id], TemplateRow::read).map(Some)
        })
        .await
    }

    /// A build of a template of the tenant's.
    pub(crate) async fn build(
        &self,
        tenant: &str,
        reference: &Reference,
        build: &str,
    ) -> Result<Option<(TemplateRow, BuildRow)>> {
        let (tenant, reference, build) = (tenant.to_owned(), reference.clone(), build.to_owned());
        self.with(move |t| {
            let Some(template) = template_of(t, &tenant, &reference)? else { return Ok(None) };
            let sql = format!("SELECT {} FROM builds WHERE template = ?1 AND id = ?2", BuildRow::COLUMNS);
            let found = t.query_row(&sql, [&template.id, &build], BuildRow::read).optional()?;
            Ok(found.map(|build| (template, build)))
        })
        .await
    }

    /// Turns a waiting build into one that is being built; `false` if it was not waiting.
    pub(crate) async fn start_build(&self, build: &str) -> Result<bool> {
        let (build, now) = (build.to_owned(), now());
        self.with(move |t| {
            let sql =
                "UPDATE builds SET status = 'building', updated_at = ?2 WHERE id = ?1 AND status = 'waiting'";
            Ok(t.execute(sql, [build, now])? == 1)
        })
        .await
    }

    /// Notes that a build succeeded, and gives it its tags: which no other build of its template has from then on. If it was deleted meanwhile, what
    /// it made is doomed, and the answer is `false`.
    pub(crate) async fn finish_build(&self, build: &str, provider: &str, done: Finished) -> Result<bool> {
        let (build, provider, now) = (build.to_owned(), provider.to_owned(), now());
        self.with(move |t| {
            let sql = format!("SELECT {} FROM builds WHERE id = ?1 AND status = 'building'", BuildRow::COLUMNS);
            let Some(row) = t.query_row(&sql, [&build], BuildRow::read).optional()? else {
                t.execute("INSERT OR IGNORE INTO doomed_templates (provider) VALUES (?1)", [&provider])?;
                return Ok(false);
            };
            t.execute(
                "UPDATE builds SET status = 'ready', updated_at = ?2, finished_at = ?2, user = ?3, workdir = ?4,
                                   size_bytes = ?5 WHERE id = ?1",
                params![build, now, done.user, done.workdir, done.size_bytes.map(signed)],
            )?;
            for tag in &row.tags {
                set_tag(t, &row.template, tag, &build, &now)?;
            }
            t.execute("UPDATE templates SET updated_at = ?2 WHERE id = ?1", [&row.template, &now])?;
            doom_untagged(t, &row.template)?;
            Ok(true)
        })
        .await
    }

    /// Notes that a build failed.
    pub(crate) async fn fail_build(&self, build: &str, message: &str, step: Option<&str>) -> Result<()> {
        let (build, message, step) = (build.to_owned(), message.to_owned(), step.map(str::to_owned));
        let now = now();
        self.with(move |t| {
            t.execute(
                "UPDATE builds SET status = 'error', reason = ?2, reason_step = ?3, updated_at = ?4, finished_at = ?4
                 WHERE id = ?1 AND status IN ('waiting', 'building')",
                params![build, message, step, now],
            )
            .map(drop)
        })
        .await
    }

    /// Forgets a build that made nothing, and its template if it has no other; what it may have made is doomed.
    pub(crate) async fn abandon_build(&self, build: &str, provider: &str, template: &str) -> Result<()> {
        let (build, provider, template) = (build.to_owned(), provider.to_owned(), template.to_owned());
        self.with(move |t| {
            t.execute("INSERT OR IGNORE INTO doomed_templates (provider) VALUES (?1)", [provider])?;
            t.execute("DELETE FROM builds WHERE id = ?1", [build])?;
            let sql = "DELETE FROM templates WHERE id = ?1 AND kind = 'snapshot' AND id NOT IN (SELECT template FROM builds)";
            t.execute(sql, [template]).map(drop)
        })
        .await
    }

    /// What a server that is no more left in the making has failed, and what it may have made is doomed.
    pub(crate) async fn fail_interrupted_builds(&self) -> Result<usize> {
        let now = now();
        self.with(move |t| {
            t.execute(
                "INSERT OR IGNORE INTO doomed_templates (provider) SELECT provider FROM builds WHERE status = 'building'",
                [],
            )?;
            t.execute(
                "UPDATE builds SET status = 'error', reason = 'the server was stopped while it was built: build it again',
                                   updated_at = ?1, finished_at = ?1 WHERE status = 'building'",
                [now],
            )
        })
        .await
    }

    /// The provider's templates that are to go.
    pub(crate) async fn doomed_templates(&self) -> Result<Vec<String>> {
        self.with(|t| {
            let mut statement = t.prepare("SELECT provider FROM doomed_templates ORDER BY provider")?;
            let rows = statement.query_map([], |row| row.get(0))?;
            rows.collect()
        })
        .await
    }

    /// One of them is gone.
    pub(crate) async fn forget_doomed(&self, provider: &str) -> Result<()> {
        let provider = provider.to_owned();
        self.with(move |t| {
            t.execute("DELETE FROM doomed_templates WHERE provider = ?1", [provider]).map(drop)
        })
        .await
    }
}

/// Gives a tag to a build, and takes it from any other of the template.
pub(super) fn set_tag(
    t: &Transaction<'_>,
    template: &str,
    tag: &str,
    build: &str,
    now: &str,
) -> rusqlite::Result<()> {
    t.execute(
        "INSERT INTO template_tags (template, tag, build, created_at) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (template, tag) DO UPDATE SET build = excluded.build, created_at = excluded.created_at",
        [template, tag, build, now],
    )
    .map(drop)
}

/// What no tag names any more is doomed: the provider's template goes when no sandbox needs it. The build stays, for who looks at it.
pub(super) fn doom_untagged(t: &Transaction<'_>, template: &str) -> rusqlite::Result<()> {
    const UNTAGGED: &str = "template = ?1 AND status = 'ready' AND provider <> ''
         AND id NOT IN (SELECT build FROM template_tags WHERE template = ?1)";
    t.execute(
        &format!(
            "INSERT OR IGNORE INTO doomed_templates (provider) SELECT provider FROM builds WHERE {UNTAGGED}"
        ),
        [template],
    )?;
    t.execute(&format!("UPDATE builds SET provider = '' WHERE {UNTAGGED}"), [template]).map(drop)
}

fn forget_old(t: &Transaction<'_>, template: &str) -> rusqlite::Result<()> {
    t.execute(
        "DELETE FROM builds WHERE template = ?1 AND status <> 'building'
         AND id NOT IN (SELECT build FROM template_tags WHERE template = ?1)
         AND id NOT IN (SELECT id FROM builds WHERE template = ?1 ORDER BY created_at DESC, id LIMIT ?2)",
        params![template, KEPT_BUILDS],
    )
    .map(drop)
}

/// `SQLite` has no number above that.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
