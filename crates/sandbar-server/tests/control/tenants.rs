use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::{Method, StatusCode};
use sandbar::SandboxProvider as _;
use serde_json::{Value, json};

use crate::common::{Rig, ask};
use crate::limits::Counting;
use crate::{detail, get, made};

/// Everything that can be asked of one sandbox.
const ROUTES: [(Method, &str, &str); 14] = [
    (Method::GET, "/sandboxes/{id}", ""),
    (Method::DELETE, "/sandboxes/{id}", ""),
    (Method::POST, "/v2/sandboxes/{id}/connect", "{}"),
    (Method::POST, "/sandboxes/{id}/connect", r#"{"timeout":5}"#),
    (Method::POST, "/sandboxes/{id}/resume", "{}"),
    (Method::POST, "/sandboxes/{id}/timeout", r#"{"timeout":1}"#),
    (Method::POST, "/sandboxes/{id}/refreshes", "{}"),
    (Method::POST, "/sandboxes/{id}/pause", "{}"),
    (Method::POST, "/sandboxes/{id}/fork", "{}"),
    (Method::PUT, "/sandboxes/{id}/network", "{}"),
    (Method::GET, "/sandboxes/{id}/metrics", ""),
    (Method::GET, "/sandboxes/{id}/logs", ""),
    (Method::GET, "/v2/sandboxes/{id}/logs", ""),
    (Method::GET, "/sandboxes/{id}-sandbar", ""),
];

#[tokio::test]
async fn an_unknown_sandbox_and_another_s_are_the_same() {
    let rig = Rig::memory().await;
    let (own, other) = (made(&rig).await, rig.other_key().await);
    for (method, path, body) in ROUTES {
        let about = async |id: &str| {
            let headers = [("x-api-key", other.as_str())];
            let path = path.replace("{id}", id);
            let reply = ask(rig.address, method.clone(), &path, &headers, body.into()).await;
            assert_eq!(reply.status, StatusCode::NOT_FOUND, "{method} {path}: {}", reply.text());
            let names: Vec<_> = reply.headers.keys().map(ToString::to_string).collect();
            (reply.text().replace(id, "ID"), names)
        };
        assert_eq!(about(&own).await, about("sunknown0000000000000").await, "{method} {path}");
    }
    let theirs = async |path: &str| {
        ask(rig.address, Method::GET, path, &[("x-api-key", other.as_str())], "".into()).await.json()
    };
    assert_eq!(theirs("/v2/sandboxes").await, json!([]));
    assert_eq!(theirs("/sandboxes").await, json!([]));
    assert_eq!(theirs(&format!("/sandboxes/metrics?sandbox_ids={own}")).await, json!({"sandboxes": {}}));
    // Nothing of all that did anything.
    assert_eq!(detail(&rig, &own).await["state"], "running");
}

/// The time of an answer tells nothing either: the backend is asked for a sandbox by its owner alone.
#[tokio::test]
async fn a_foreign_sandbox_is_not_even_looked_at() {
    let provider = Arc::new(Counting::default());
    let rig = Rig::over(tempfile::tempdir().unwrap(), Arc::clone(&provider) as _, |_, _| {}).await;
    let (own, other) = (made(&rig).await, rig.other_key().await);
    // The least of some: somebody looks at all that run every few seconds.
    let looks = async |key: &str, id: &str| {
        let (mut status, mut least) = (0, usize::MAX);
        for _ in 0..3 {
            let before = provider.looks.load(Ordering::Relaxed);
            let target = format!("/sandboxes/{id}");
            let reply = ask(rig.address, Method::GET, &target, &[("x-api-key", key)], "".into()).await;
            status = reply.status.as_u16();
            least = least.min(provider.looks.load(Ordering::Relaxed) - before);
        }
        (status, least)
    };
    for id in [own.as_str(), "sunknown0000000000000"] {
        assert_eq!(looks(&other, id).await, (404, 0), "{id}");
    }
    assert_eq!(looks(&rig.key, &own).await, (200, 1));
    // What another server over the same backend has made is found, though nobody told this one.
    let record = rig.sandbox(&own).await.record().await.unwrap();
    let labels = record.labels.clone();
    let beside = provider.create(sandbar::CreateOptions::new().with_labels(labels)).await.unwrap();
    assert_eq!(looks(&rig.key, beside.id().as_str()).await.0, 200);
}

#[tokio::test]
async fn what_the_server_did_not_make_is_nobody_s() {
    let rig = Rig::memory().await;
    let foreign = rig.provider.create(sandbar::CreateOptions::new()).await.unwrap();
    let path = format!("/sandboxes/{}", foreign.id());
    assert_eq!(get(&rig, &path).await.status, StatusCode::NOT_FOUND);
    assert_eq!(rig.control(Method::DELETE, &path, Value::Null).await.status, StatusCode::NOT_FOUND);
    assert!(foreign.record().await.is_ok());
}
