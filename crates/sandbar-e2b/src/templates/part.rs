use std::collections::BTreeMap;

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use http::StatusCode;
use jiff::Timestamp;
use sandbar_core::{
    CommitOptions, Error, ErrorKind, GuestPath, Result, Sandbox as _, Template, TemplateId, Templates,
};
use sandbar_wire::e2b::{ListedSandbox, Metadata, SandboxDetail, SandboxState, SnapshotInfo};

use super::{Use, bare_name, is_bare, template_part, usage};
use crate::api::{is_absent, refusal};
use crate::config::BACKEND;
use crate::error::asleep;
use crate::{E2bProvider, E2bSandbox};

/// Most look-ups of template ids in flight.
const LOOKUPS: usize = 16;

/// The tag that a snapshot has unless it is given another.
const DEFAULT_TAG: &str = ":default";

#[async_trait]
impl Templates for E2bProvider {
    /// Captures files, and neither memory nor what runs. The word on it is not kept by E2B: it is in this answer alone.
    async fn commit(&self, options: CommitOptions) -> Result<Template> {
        const OPERATION: &str = "commit";
        let CommitOptions { sandbox: id, template, capture_paths, label } = options;
        if !is_bare(template.as_str()) {
            let message = format!("`{template}` can't be a name at E2B: expected 1 to 128 of `a-z 0-9 - _`");
            return Err(Error::invalid(OPERATION, message).with_backend(BACKEND));
        }
        let sandbox = self.handle(id.clone());
        let detail = sandbox.detail(OPERATION).await?;
        if detail.listed.state == SandboxState::Paused {
            return Err(asleep(OPERATION, &id));
        }
        sandbox.access.learn(&detail);
        for path in &capture_paths {
            captured(OPERATION, &sandbox, &detail, path).await?;
        }
        let made = match self.api.snapshot(OPERATION, &id, template.as_str()).await {
            Ok(made) => made,
            Err(error) => return Err(sandbox.in_the_way(OPERATION, error).await),
        };
        let Some(made) = made else { return Err(sandbox.not_running(OPERATION).await) };
        if bare_name(&made) != template.as_str() {
            let message = format!("E2B captured it as `{}`, and not as `{template}`", made.snapshot_id);
            return Err(Error::new(ErrorKind::Protocol, OPERATION, message)
                .with_backend(BACKEND)
                .with_left_behind(format!("template `{}`", made.snapshot_id)));
        }
        Ok(Template {
            id: template,
            reference: made.snapshot_id,
            created_at: Some(Timestamp::now()),
            size_bytes: None,
            label,
            in_use: true,
        })
    }

    async fn get(&self, id: &TemplateId) -> Result<Option<Template>> {
        const OPERATION: &str = "look for template";
        let Some(snapshot) = self.snapshot(OPERATION, id).await? else { return Ok(None) };
        let rows = self.rows(OPERATION).await?;
        Ok(Some(self.template(OPERATION, id.clone(), snapshot, &rows).await))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Template>> {
        const OPERATION: &str = "list templates";
        let (snapshots, rows) =
            futures::try_join!(self.api.snapshots(OPERATION, None), self.rows(OPERATION))?;
        let mut by_name: BTreeMap<String, SnapshotInfo> = BTreeMap::new();
        for snapshot in snapshots {
            let name = bare_name(&snapshot).to_owned();
            let is_default = snapshot.snapshot_id.ends_with(DEFAULT_TAG);
            if name.starts_with(prefix) && (is_default || !by_name.contains_key(&name)) {
                by_name.insert(name, snapshot);
            }
        }
        let templates = stream::iter(by_name).map(|(name, snapshot)| {
            let rows = &rows;
            async move {
                let id = TemplateId::new(name).map_err(|error| {
                    Error::new(
                        ErrorKind::Protocol,
                        OPERATION,
                        "the API answered a snapshot's name that is none",
                    )
                    .with_backend(BACKEND)
                    .with_source(error)
                })?;
                Ok(self.template(OPERATION, id, snapshot, rows).await)
            }
        });
        templates.buffered(LOOKUPS).try_collect().await
    }

    async fn remove(&self, id: &TemplateId) -> Result<bool> {
        const OPERATION: &str = "remove template";
        let Some(snapshot) = self.snapshot(OPERATION, id).await? else { return Ok(false) };
        let rows = self.rows(OPERATION).await?;
        let reference = snapshot.snapshot_id.clone();
        if self.template(OPERATION, id.clone(), snapshot, &rows).await.in_use {
            return Err(in_use(OPERATION, id, "a sandbox was made from it, or may have been"));
        }
        let response = self.api.remove_template(OPERATION, &reference).await?;
        match response.status() {
            _ if is_absent(&response) => Ok(response.attempts() > 1),
            status if status.is_success() => Ok(true),
            // Somebody made a sandbox from it between both looks.
            StatusCode::BAD_REQUEST | StatusCode::CONFLICT => {
                let error = refusal(&response);
                Err(in_use(OPERATION, id, error.message()).with_source(error))
            }
            _ => Err(refusal(&response)),
        }
    }
}

fn in_use(operation: &'static str, id: &TemplateId, why: &str) -> Error {
    Error::new(ErrorKind::Conflict, operation, format!("template `{id}` is in use: {why}"))
        .with_backend(BACKEND)
        .with_resource(format!("template `{id}`"))
        .with_hint("destroy the sandboxes that were made from it first")
}

/// Refuses a path that will not be in the capture: what is not there, and what is on a volume or holds one.
async fn captured(
    operation: &'static str,
    sandbox: &E2bSandbox,
    detail: &SandboxDetail,
    path: &GuestPath,
) -> Result<()> {
    let Some(entry) = sandbox.files().stat(path).await? else {
        return Err(Error::not_found(operation, format!("path `{path}`")).with_backend(BACKEND));
    };
    let end = entry.link_target.and_then(|target| GuestPath::new(target).ok());
    let paths: Vec<&GuestPath> = [Some(path), end.as_ref()].into_iter().flatten().collect();
    for mount in detail.listed.volume_mounts.iter().flatten() {
        let at = GuestPath::new(&mount.path).map_err(|error| {
            Error::new(ErrorKind::Protocol, operation, "the API answered a mount path that is none")
                .with_backend(BACKEND)
                .with_source(error)
        })?;
        if let Some(met) = paths.iter().find(|path| overlap(path, &at)) {
            let message = format!(
                "`{met}` would not be in it: volume `{}` is at `{at}`, and volumes are not captured",
                mount.name
            );
            return Err(Error::invalid(operation, message).with_backend(BACKEND));
        }
    }
    Ok(())
}

/// Whether one lies within the other, in either direction.
fn overlap(one: &GuestPath, other: &GuestPath) -> bool {
    one.is_within(other) || other.is_within(one)
}

impl E2bProvider {
    async fn snapshot(&self, operation: &'static str, id: &TemplateId) -> Result<Option<SnapshotInfo>> {
        if !is_bare(id.as_str()) {
            return Ok(None);
        }
        let found = self.api.snapshots(operation, Some(id.as_str())).await?;
        let mut named = found.into_iter().filter(|snapshot| bare_name(snapshot) == id.as_str());
        let first = named.next();
        let default = named.find(|snapshot| snapshot.snapshot_id.ends_with(DEFAULT_TAG));
        Ok(match first {
            Some(first) if first.snapshot_id.ends_with(DEFAULT_TAG) => Some(first),
            first => default.or(first),
        })
    }

    async fn rows(&self, operation: &'static str) -> Result<Vec<ListedSandbox>> {
        let both = [SandboxState::Running, SandboxState::Paused];
        self.api.list(operation, &Metadata::new(), &both).try_collect().await
    }

    async fn template(
        &self,
        operation: &'static str,
        id: TemplateId,
        snapshot: SnapshotInfo,
        rows: &[ListedSandbox],
    ) -> Template {
        let mut used = usage(rows, id.as_str(), None);
        if used == Use::Unknown {
            // What can't be looked up stays unknown.
            let known = self.api.template_id(operation, id.as_str()).await.ok().flatten();
            let known = known.as_deref().map(template_part);
            used = usage(rows, id.as_str(), known);
        }
        Template {
            id,
            reference: snapshot.snapshot_id,
            created_at: None,
            size_bytes: None,
            label: None,
            in_use: used != Use::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_and_a_mount_meet_in_both_directions() {
        let path = |text: &str| GuestPath::new(text).unwrap();
        for (one, other, meet) in [
            ("/a/b", "/a/b", true),
            ("/a/b/c", "/a/b", true),
            ("/a", "/a/b", true),
            ("/", "/a/b", true),
            ("/a/bc", "/a/b", false),
            ("/c", "/a/b", false),
        ] {
            assert_eq!(overlap(&path(one), &path(other)), meet, "{one} {other}");
        }
    }
}
