use std::time::Duration;

use futures::TryStreamExt;
use http::Method;
use sandbar_core::{Result, SandboxId};
use sandbar_http::{Idempotency, Response};
use sandbar_wire::e2b::{AliasAnswer, NewSnapshot, SnapshotInfo};

use super::answer::{is_absent, refusal};
use super::client::{Api, segment};
use super::page::{PAGE, Page, pages};
use super::sandboxes::named;

/// How long a snapshot may take: it is written while this waits.
const SNAPSHOT: Duration = Duration::from_secs(600);

impl Api {
    /// Captures a sandbox' files under a name; `None` if there is no such sandbox that runs.
    pub(crate) async fn snapshot(
        &self,
        operation: &'static str,
        id: &SandboxId,
        name: &str,
    ) -> Result<Option<SnapshotInfo>> {
        // Memory would bring along whatever secrets processes hold, to everybody who boots from it.
        let asked = NewSnapshot { name: Some(name.to_owned()), memory: Some(false) };
        let request = self
            .request(operation, Method::POST, &format!("/sandboxes/{id}/snapshots"))
            .with_resource(named(id))
            .with_json(&asked)
            .with_timeout(SNAPSHOT);
        let response = self.send(operation, request).await?;
        if is_absent(&response) {
            return Ok(None);
        }
        if response.status().is_success() { Ok(Some(response.json()?)) } else { Err(refusal(&response)) }
    }

    /// All snapshots, or those of one name.
    pub(crate) async fn snapshots(
        &self,
        operation: &'static str,
        name: Option<&str>,
    ) -> Result<Vec<SnapshotInfo>> {
        let api = self.clone();
        let filter = name.map(|name| format!("&name={}", segment(name))).unwrap_or_default();
        let pages = pages(operation, move |token: Option<String>| {
            let (api, mut path) = (api.clone(), format!("/snapshots?limit={PAGE}{filter}"));
            if let Some(token) = token {
                path.push_str("&nextToken=");
                path.push_str(&segment(&token));
            }
            async move {
                let request = api.request(operation, Method::GET, &path);
                Page::of(&api.succeed(operation, request).await?)
            }
        });
        let pages: Vec<Page<SnapshotInfo>> = pages.try_collect().await?;
        Ok(pages.into_iter().flat_map(|page| page.rows).collect())
    }

    /// The id of the template of this name; `None` if there is none.
    pub(crate) async fn template_id(&self, operation: &'static str, name: &str) -> Result<Option<String>> {
        let request = self.request(operation, Method::GET, &format!("/templates/aliases/{}", segment(name)));
        let response = self.send(operation, request).await?;
        if is_absent(&response) {
            return Ok(None);
        }
        if !response.status().is_success() {
            return Err(refusal(&response));
        }
        Ok(Some(response.json::<AliasAnswer>()?.template_id))
    }

    /// Removes a template or snapshot; whatever the status, its answer.
    pub(crate) async fn remove_template(&self, operation: &'static str, reference: &str) -> Result<Response> {
        let path = format!("/templates/{}", segment(reference));
        let request = self.request(operation, Method::DELETE, &path).with_idempotency(Idempotency::Safe);
        self.send(operation, request).await
    }
}
