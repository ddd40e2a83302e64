use rusqlite::params;
use sandbar_core::Result;

use super::rows::{BuildRow, SnapshotRow, TemplateRow};
use crate::store::Store;

/// Which snapshots, and how many after which.
#[derive(Clone, Debug, Default)]
pub(crate) struct SnapshotQuery {
    pub(crate) sandbox: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) tag: Option<String>,
    /// Where to go on: what [`SnapshotRow::position`] says of the last one.
    pub(crate) after: Option<(String, String)>,
    pub(crate) limit: usize,
}

impl Store {
    /// The tenant's templates that were built, newest first, each with its newest build and how many it has.
    pub(crate) async fn templates(&self, tenant: &str) -> Result<Vec<(TemplateRow, BuildRow, i64)>> {
        let tenant = tenant.to_owned();
        self.with(move |t| {
            let sql = format!(
                "SELECT {} FROM templates WHERE tenant = ?1 AND kind = 'build' ORDER BY created_at DESC, id",
                TemplateRow::COLUMNS
            );
            let mut statement = t.prepare(&sql)?;
            let rows =
                statement.query_map([tenant], TemplateRow::read)?.collect::<rusqlite::Result<Vec<_>>>()?;
            let mut listed = Vec::with_capacity(rows.len());
            for template in rows {
                let mut builds = builds_of(t, &template.id)?;
                if builds.is_empty() {
                    continue;
                }
                let count = i64::try_from(builds.len()).unwrap_or(i64::MAX);
                listed.push((template, builds.swap_remove(0), count));
            }
            Ok(listed)
        })
        .await
    }

    /// The builds of a template, newest first.
    pub(crate) async fn builds(&self, template: &str) -> Result<Vec<BuildRow>> {
        let template = template.to_owned();
        self.with(move |t| builds_of(t, &template)).await
    }

    /// The tenant's snapshots, newest first: one for each tag that a snapshot has.
    pub(crate) async fn snapshots(&self, tenant: &str, query: SnapshotQuery) -> Result<Vec<SnapshotRow>> {
        let tenant = tenant.to_owned();
        self.with(move |t| {
            let (after_at, after_key) = query.after.unwrap_or_default();
            let mut statement = t.prepare(
                "SELECT templates.id, templates.name, template_tags.tag, template_tags.created_at,
                        templates.id || ':' || template_tags.tag AS key
                 FROM template_tags JOIN builds ON builds.id = template_tags.build
                 JOIN templates ON templates.id = template_tags.template
                 WHERE templates.tenant = ?1 AND builds.sandbox IS NOT NULL
                   AND (?2 IS NULL OR builds.sandbox = ?2)
                   AND (?3 IS NULL OR templates.name = ?3 OR templates.id = ?3)
                   AND (?4 IS NULL OR template_tags.tag = ?4)
                   AND (?5 = '' OR template_tags.created_at < ?5 OR (template_tags.created_at = ?5 AND key > ?6))
                 ORDER BY template_tags.created_at DESC, key LIMIT ?7",
            )?;
            let rows = statement.query_map(
                params![tenant, query.sandbox, query.name, query.tag, after_at, after_key, query.limit],
                SnapshotRow::read,
            )?;
            rows.collect()
        })
        .await
    }
}

fn builds_of(t: &rusqlite::Transaction<'_>, template: &str) -> rusqlite::Result<Vec<BuildRow>> {
    let sql =
        format!("SELECT {} FROM builds WHERE template = ?1 ORDER BY created_at DESC, id", BuildRow::COLUMNS);
    let mut statement = t.prepare(&sql)?;
    let rows = statement.query_map([template], BuildRow::read)?;
    rows.collect()
}
