use http::StatusCode;
use serde_json::{Value, json};

use crate::common::Rig;
use crate::{get, made, message, post};

fn ids(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|item| item["sandboxID"].as_str().unwrap().to_owned()).collect()
}

/// All pages, one after another.
async fn walk(rig: &Rig, query: &str) -> Vec<String> {
    let (mut all, mut token) = (Vec::new(), String::new());
    for _ in 0..20 {
        let reply = get(rig, &format!("/v2/sandboxes?{query}{token}")).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
        all.extend(ids(&reply.json()));
        match reply.headers.get("x-next-token") {
            Some(next) => token = format!("&nextToken={}", next.to_str().unwrap()),
            None => return all,
        }
    }
    panic!("the pages do not end");
}

/// Bug 24 of those that others had: the token was ignored, so SDKs went round for ever.
#[tokio::test]
async fn pages_have_each_sandbox_once() {
    let rig = Rig::memory().await;
    let mut made_ids = Vec::new();
    for _ in 0..3 {
        made_ids.push(made(&rig).await);
    }
    let (descending, ascending) = (walk(&rig, "limit=1").await, walk(&rig, "limit=1&order=asc").await);
    assert_eq!(descending.len(), 3);
    assert_eq!(ascending, descending.iter().rev().cloned().collect::<Vec<_>>());
    assert_eq!(walk(&rig, "limit=2").await, descending);
    let mut sorted = descending.clone();
    sorted.sort();
    made_ids.sort();
    assert_eq!(sorted, made_ids);

    let reply = get(&rig, "/v2/sandboxes?limit=1").await;
    assert_eq!(reply.headers["x-total-running"], "3");
    let token = reply.headers["x-next-token"].to_str().unwrap();
    let turned = get(&rig, &format!("/v2/sandboxes?order=asc&nextToken={token}")).await;
    assert_eq!(message(&turned, 400), "Invalid next token");
    for bad in
        ["limit=0", "limit=101", "limit=-1", "order=up", "state=dead", "startedAfter=now", "template=a:b"]
    {
        message(&get(&rig, &format!("/v2/sandboxes?{bad}")).await, 400);
    }
}

#[tokio::test]
async fn filters_are_all_heeded() {
    let rig = Rig::memory().await;
    let one = rig.create(json!({"templateID": "base", "metadata": {"a": "b c", "n": "1"}})).await.id;
    let two = rig.create(json!({"templateID": "base", "metadata": {"a": "b c", "n": "2"}})).await.id;
    assert_eq!(
        post(&rig, &format!("/sandboxes/{two}/pause"), json!({})).await.status,
        StatusCode::NO_CONTENT
    );
    let found = async |query: &str| {
        let mut found = ids(&get(&rig, &format!("/v2/sandboxes?{query}")).await.json());
        found.sort();
        found
    };
    let mut both = [one.clone(), two.clone()];
    both.sort();
    let (first, second) = ([one], [two]);
    // As SDKs send it: encoded three times.
    assert_eq!(found("metadata=a%3Db%252520c").await, both);
    assert_eq!(found("metadata=a%3Db%252520c%26n%3D2").await, second);
    assert!(found("metadata=a%3Db").await.is_empty());
    assert_eq!(found("").await, both);
    assert_eq!(found("state=running,paused").await, both);
    assert_eq!(found("state=running").await, first);
    assert_eq!(found("state=paused").await, second);
    assert_eq!(found("template=base").await, both);
    assert!(found("template=unknown").await.is_empty());
    assert_eq!(found("startedAfter=2020-01-01T00:00:00Z").await, both);
    assert!(found("startedAfter=2100-01-01T00:00:00Z").await.is_empty());
    // The older form has those that run.
    let old = get(&rig, "/sandboxes").await;
    assert_eq!(ids(&old.json()), first);
    assert!(get(&rig, "/v2/sandboxes?state=paused").await.headers.get("x-total-running").is_none());
    assert_eq!(old.json()[0]["metadata"], json!({"a": "b c", "n": "1"}));
}
