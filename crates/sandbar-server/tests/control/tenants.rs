use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::common::{Rig, ask};
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

#[tokio::test]
async fn what_the_server_did_not_make_is_nobody_s() {
    let rig = Rig::memory().await;
    let foreign = rig.provider.create(sandbar::CreateOptions::new()).await.unwrap();
    let path = format!("/sandboxes/{}", foreign.id());
    assert_eq!(get(&rig, &path).await.status, StatusCode::NOT_FOUND);
    assert_eq!(rig.control(Method::DELETE, &path, Value::Null).await.status, StatusCode::NOT_FOUND);
    assert!(foreign.record().await.is_ok());
}
