use rusqlite::{OptionalExtension as _, Transaction, params};
use sandbar_core::Result;

use super::now;
use super::rows::{BuildRow, Found, TemplateRow};
use crate::control::Reference;
use crate::store::Store;

impl Store {
    /// The tenant's template that `reference` names, by name or id, with the build that its tag means.
    pub(crate) async fn find_template(&self, tenant: &str, reference: &Reference) -> Result<Option<Found>> {
        let (tenant, reference) = (tenant.to_owned(), reference.clone());
        self.with(move |t| {
            let Some(template) = template_of(t, &tenant, &reference)? else { return Ok(None) };
            let build = build_of(t, &template.id, reference.tag_or_default())?;
            Ok(Some(Found { template, build }))
        })
        .await
    }

    /// Notes that a sandbox was made from a template of a tenant's.
    pub(crate) async fn note_spawn(&self, template: &str) -> Result<()> {
        let (template, now) = (template.to_owned(), now());
        self.with(move |t| {
            t.execute(
                "UPDATE templates SET spawn_count = spawn_count + 1, last_spawned_at = ?2 WHERE id = ?1",
                params![template, now],
            )
            .map(drop)
        })
        .await
    }
}

/// The tenant's template of this name or id. A namespace that is not the tenant's names nothing.
pub(super) fn template_of(
    t: &Transaction<'_>,
    tenant: &str,
    reference: &Reference,
) -> rusqlite::Result<Option<TemplateRow>> {
    if reference.namespace.as_deref().is_some_and(|namespace| namespace != tenant) {
        return Ok(None);
    }
    let sql = format!(
        "SELECT {} FROM templates WHERE tenant = ?1 AND (name = ?2 OR id = ?2) ORDER BY name IS ?2 DESC LIMIT 1",
        TemplateRow::COLUMNS
    );
    t.query_row(&sql, [tenant, &reference.name], TemplateRow::read).optional()
}

/// The build that a tag, or its own id, means. Only one that is ready has a tag.
pub(super) fn build_of(t: &Transaction<'_>, template: &str, tag: &str) -> rusqlite::Result<Option<BuildRow>> {
    let sql = format!(
        "SELECT {} FROM builds WHERE template = ?1 AND status = 'ready'
         AND (id = (SELECT build FROM template_tags WHERE template = ?1 AND tag = ?2) OR id = ?2)",
        BuildRow::COLUMNS
    );
    t.query_row(&sql, [template, tag], BuildRow::read).optional()
}
