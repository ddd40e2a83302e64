use rusqlite::params;
use sandbar_core::Result;

use super::builds::{doom_untagged, set_tag};
use super::find::{build_of, template_of};
use super::now;
use super::rows::{TagRow, TemplateRow};
use crate::control::Reference;
use crate::store::Store;

/// What came of the deletion of tags or of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// They are gone; these builds may be on their way and have to end.
    Done(Vec<String>),
    /// There is no such template.
    NoTemplate,
    /// It has no such tag.
    NoTag(String),
}

impl Store {
    /// The tags of a template of the tenant's, newest first.
    pub(crate) async fn tags(&self, tenant: &str, reference: &Reference) -> Result<Option<Vec<TagRow>>> {
        let (tenant, reference) = (tenant.to_owned(), reference.clone());
        self.with(move |t| {
            let Some(template) = template_of(t, &tenant, &reference)? else { return Ok(None) };
            let mut statement = t.prepare(
                "SELECT tag, build, created_at FROM template_tags WHERE template = ?1 ORDER BY created_at DESC, tag",
            )?;
            let rows = statement.query_map([template.id], TagRow::read)?;
            rows.collect::<rusqlite::Result<_>>().map(Some)
        })
        .await
    }

    /// Gives tags to the build that `target` names, and answers its id. `Err` inside is what is not there.
    pub(crate) async fn assign_tags(
        &self,
        tenant: &str,
        target: &Reference,
        tags: Vec<String>,
    ) -> Result<Result<String, Removal>> {
        let (tenant, target, now) = (tenant.to_owned(), target.clone(), now());
        self.with(move |t| {
            let Some(template) = template_of(t, &tenant, &target)? else {
                return Ok(Err(Removal::NoTemplate));
            };
            let Some(build) = build_of(t, &template.id, target.tag_or_default())? else {
                return Ok(Err(Removal::NoTag(target.tag_or_default().to_owned())));
            };
            for tag in &tags {
                set_tag(t, &template.id, tag, &build.id, &now)?;
            }
            doom_untagged(t, &template.id)?;
            Ok(Ok(build.id))
        })
        .await
    }

    /// Takes tags from a template. All of them, or none where it lacks one.
    pub(crate) async fn remove_tags(
        &self,
        tenant: &str,
        reference: &Reference,
        tags: Vec<String>,
    ) -> Result<Removal> {
        let (tenant, reference) = (tenant.to_owned(), reference.clone());
        self.with(move |t| {
            let Some(template) = template_of(t, &tenant, &reference)? else { return Ok(Removal::NoTemplate) };
            for tag in &tags {
                if build_of(t, &template.id, tag)?.is_none() {
                    return Ok(Removal::NoTag(tag.clone()));
                }
            }
            for tag in &tags {
                t.execute("DELETE FROM template_tags WHERE template = ?1 AND tag = ?2", [&template.id, tag])?;
            }
            doom_untagged(t, &template.id)?;
            Ok(Removal::Done(Vec::new()))
        })
        .await
    }

    /// Deletes a template with all its builds; where `reference` has a tag, and the template others beside it, only that tag.
    pub(crate) async fn remove_template(&self, tenant: &str, reference: &Reference) -> Result<Removal> {
        let (tenant, reference) = (tenant.to_owned(), reference.clone());
        self.with(move |t| {
            let Some(template) = template_of(t, &tenant, &reference)? else { return Ok(Removal::NoTemplate) };
            if let Some(tag) = &reference.tag {
                let sql = "DELETE FROM template_tags WHERE template = ?1 AND (tag = ?2 OR build = ?2)";
                if t.execute(sql, [&template.id, tag])? == 0 {
                    return Ok(Removal::NoTag(tag.clone()));
                }
                let sql = "SELECT count(*) FROM template_tags WHERE template = ?1";
                let left: i64 = t.query_row(sql, [&template.id], |row| row.get(0))?;
                if left > 0 {
                    doom_untagged(t, &template.id)?;
                    return Ok(Removal::Done(Vec::new()));
                }
            }
            t.execute(
                "INSERT OR IGNORE INTO doomed_templates (provider) SELECT provider FROM builds WHERE template = ?1 AND status = 'ready' AND provider <> ''",
                [&template.id],
            )?;
            let mut statement =
                t.prepare("SELECT id FROM builds WHERE template = ?1 AND status IN ('waiting', 'building')")?;
            let running = statement.query_map([&template.id], |row| row.get(0))?;
            let running = running.collect::<rusqlite::Result<_>>()?;
            t.execute("DELETE FROM templates WHERE id = ?1", params![template.id])?;
            Ok(Removal::Done(running))
        })
        .await
    }

    /// The tenant's template of this name or id, whether it has a build or not.
    pub(crate) async fn template(&self, tenant: &str, reference: &Reference) -> Result<Option<TemplateRow>> {
        let (tenant, reference) = (tenant.to_owned(), reference.clone());
        self.with(move |t| template_of(t, &tenant, &reference)).await
    }
}
