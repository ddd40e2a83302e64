use http::StatusCode;
use serde_json::{Value, json};

use crate::common::Rig;
use crate::{get, made, message, post};

/// Bug 23 of those that others had: there was no sample however long one waited.
#[tokio::test]
async fn metrics_are_there_at_once_and_have_every_field() {
    let rig = Rig::memory().await;
    let id = made(&rig).await;
    let metrics = async |query: &str| get(&rig, &format!("/sandboxes/{id}/metrics{query}")).await;
    let samples = metrics("").await.json();
    let sample = samples[0].as_object().unwrap_or_else(|| panic!("{samples}"));
    for field in [
        "timestamp",
        "timestampUnix",
        "cpuCount",
        "cpuUsedPct",
        "memUsed",
        "memTotal",
        "memCache",
        "diskUsed",
        "diskTotal",
    ] {
        assert!(sample.contains_key(field), "{field}");
    }
    assert!(sample["cpuCount"].as_u64().unwrap() >= 1);
    assert_eq!(metrics("?start=100&end=200").await.json(), json!([]));
    message(&metrics("?start=200&end=100").await, 400);
    message(&metrics("?start=x").await, 400);
    message(&get(&rig, "/sandboxes/metrics").await, 400);
}

#[tokio::test]
async fn logs_say_what_happened_in_order() {
    let rig = Rig::memory().await;
    let id = made(&rig).await;
    post(&rig, &format!("/sandboxes/{id}/pause"), json!({})).await;
    post(&rig, &format!("/v2/sandboxes/{id}/connect"), json!({})).await;
    let logs = async |query: &str| {
        let reply = get(&rig, &format!("/v2/sandboxes/{id}/logs{query}")).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
        let logs = reply.json()["logs"].as_array().unwrap().clone();
        logs.iter().map(|entry| entry["message"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let words = ["sandbox created", "sandbox paused", "sandbox resumed"];
    assert_eq!(logs("").await, words);
    assert_eq!(logs("?direction=backward&limit=1").await, [words[2]]);
    assert_eq!(logs("?search=pau").await, [words[1]]);
    assert!(logs("?level=error").await.is_empty());
    assert!(logs("?cursor=99999999999999").await.is_empty());
    message(&get(&rig, &format!("/v2/sandboxes/{id}/logs?level=loud")).await, 400);
    let old: Value = get(&rig, &format!("/sandboxes/{id}/logs")).await.json();
    // What the CLI reads of a line.
    let line: Value = serde_json::from_str(old["logs"][0]["line"].as_str().unwrap()).unwrap();
    assert_eq!((&line["level"], &line["message"]), (&json!("info"), &json!(words[0])));
    assert!(line["logger"].is_string());
    assert_eq!(old["logEntries"][0]["level"], "info");
}
