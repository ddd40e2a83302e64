use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use futures::stream::BoxStream;
use http::StatusCode;
use sandbar::{
    CreateOptions, GetOptions, MemoryProvider, Query, Result, Sandbox, SandboxId, SandboxProvider,
    SandboxRecord,
};
use sandbar_server::Limits;
use serde_json::json;

use crate::common::Rig;
use crate::{kill, made, message, post};

async fn rig(sandboxes: u32) -> Rig {
    Rig::memory_with(move |config| config.limits = Limits { sandboxes, ..Limits::default() }).await
}

#[tokio::test]
async fn each_place_is_given_once_and_none_stays_empty() {
    let rig = rig(3).await;
    let body = || json!({"templateID": "base"});
    for _ in 0..5 {
        let replies = join_all((0..6).map(|_| post(&rig, "/v2/sandboxes", body()))).await;
        let (made, refused): (Vec<_>, Vec<_>) =
            replies.into_iter().partition(|reply| reply.status == StatusCode::CREATED);
        assert_eq!((made.len(), refused.len()), (3, 3));
        let text = message(&refused[0], 429);
        assert!(
            text.contains("you have reached the maximum number of concurrent E2B sandboxes (3)"),
            "{text}"
        );
        // Python would try it again by itself.
        assert_eq!(refused[0].headers["should-retry"], "false");
        for reply in made {
            kill(&rig, reply.json()["sandboxID"].as_str().unwrap()).await;
        }
    }
}

#[tokio::test]
async fn what_is_paused_has_no_place_and_needs_one_to_go_on() {
    let rig = rig(1).await;
    let first = made(&rig).await;
    message(&post(&rig, "/v2/sandboxes", json!({"templateID": "base"})).await, 429);
    post(&rig, &format!("/sandboxes/{first}/pause"), json!({})).await;
    let second = made(&rig).await;
    let connect = async || post(&rig, &format!("/v2/sandboxes/{first}/connect"), json!({})).await;
    message(&connect().await, 429);
    kill(&rig, &second).await;
    assert_eq!(connect().await.status, StatusCode::CREATED);
    // It has its place already.
    assert_eq!(connect().await.status, StatusCode::OK);
}

/// What sleeps costs memory and disk space, too.
#[tokio::test]
async fn sandboxes_that_sleep_are_bounded_as_well() {
    let rig = Rig::memory_with(|config| {
        config.limits = Limits { sandboxes: 1, sleeping: 2, ..Limits::default() };
    })
    .await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let id = made(&rig).await;
        let paused = post(&rig, &format!("/sandboxes/{id}/pause"), json!({})).await;
        assert_eq!(paused.status, StatusCode::NO_CONTENT, "{}", paused.text());
        ids.push(id);
    }
    let refused = message(&post(&rig, "/v2/sandboxes", json!({"templateID": "base"})).await, 429);
    assert!(refused.contains("3 sandboxes, of which 3 are paused"), "{refused}");
    // One of those may go on: there are no more of them then.
    let resumed = post(&rig, &format!("/v2/sandboxes/{}/connect", ids[0]), json!({})).await;
    assert_eq!(resumed.status, StatusCode::CREATED, "{}", resumed.text());
    kill(&rig, &ids[1]).await;
    kill(&rig, &ids[0]).await;
    made(&rig).await;
}

/// Counts how often all sandboxes are looked at, and one of them.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    inner: MemoryProvider,
    lists: AtomicUsize,
    pub(crate) looks: AtomicUsize,
}

#[async_trait::async_trait]
impl SandboxProvider for Counting {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    async fn create(&self, options: CreateOptions) -> Result<Arc<dyn Sandbox>> {
        self.inner.create(options).await
    }

    async fn get_opts(&self, id: &SandboxId, options: GetOptions) -> Result<Option<Arc<dyn Sandbox>>> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.inner.get_opts(id, options).await
    }

    async fn describe(&self, id: &SandboxId) -> Result<Option<SandboxRecord>> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.inner.describe(id).await
    }

    async fn list(&self, query: Query) -> Result<BoxStream<'static, Result<SandboxRecord>>> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.inner.list(query).await
    }

    async fn destroy(&self, id: &SandboxId) -> Result<bool> {
        self.inner.destroy(id).await
    }
}

/// What a creation costs does not grow with the sandboxes that there are: they are not looked at, unless the limit is near.
#[tokio::test]
async fn a_creation_looks_at_no_other_sandbox() {
    const MANY: u32 = 40;
    let provider = Arc::new(Counting::default());
    let rig = Rig::over(tempfile::tempdir().unwrap(), Arc::clone(&provider) as _, |_, config| {
        config.limits = Limits { sandboxes: MANY, ..Limits::default() };
    })
    .await;
    let first = made(&rig).await;
    let before = provider.lists.load(Ordering::Relaxed);
    for _ in 1..MANY {
        made(&rig).await;
    }
    // Somebody looks every few seconds.
    let looks = provider.lists.load(Ordering::Relaxed) - before;
    assert!(looks < 10, "{looks} looks for {MANY} creations");
    message(&post(&rig, "/v2/sandboxes", json!({"templateID": "base"})).await, 429);
    // One that ended without the server's help frees its place as well.
    provider.destroy(&SandboxId::new(&first).unwrap()).await.unwrap();
    made(&rig).await;
    message(&post(&rig, "/v2/sandboxes", json!({"templateID": "base"})).await, 429);
}
