use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::common::{PATIENCE, Rig};
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

/// The number of a line of `/metrics` whose name and labels begin so and have all these words; 0 if there is none.
async fn count(rig: &Rig, name: &str, words: &[&str]) -> f64 {
    let counts = rig.ask(Method::GET, "/metrics", &[], "").await;
    assert_eq!(counts.status, StatusCode::OK, "{}", counts.text());
    let text = counts.text();
    let mut lines = text.lines().filter(|line| {
        line.starts_with(name) && !line.starts_with('#') && words.iter().all(|word| line.contains(word))
    });
    lines.next().map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn requests_of_each_plane_and_connections_are_counted_and_nobody_is_named() {
    let rig = Rig::memory().await;
    let sandbox = rig.create(json!({"templateID": "base"})).await;
    let guest = sandbox.guest();
    assert_eq!(rig.ask(Method::GET, "/health", &guest, "").await.status, StatusCode::NO_CONTENT);
    for path in ["/made/up/by/the/client", "/other"] {
        rig.ask(Method::GET, path, &guest, "").await;
    }
    let port = [("e2b-sandbox-id", sandbox.id.as_str()), ("e2b-sandbox-port", "8080")];
    let answered = rig.ask(Method::GET, "/secret-path", &port, "").await;
    let lonely = rig.ask(Method::GET, "/", &port[..1], "").await;
    assert_eq!(lonely.status, StatusCode::BAD_REQUEST);

    let requests = "sandbar_requests_total{";
    for (number, words) in [
        (1.0, [r#"plane="Guest""#, r#"route="/health""#, r#"status="204""#]),
        (2.0, [r#"plane="Guest""#, r#"route="other""#, "status="]),
        (1.0, [r#"plane="Port""#, r#"route="any""#, &format!(r#"status="{}""#, answered.status.as_u16())]),
        (1.0, [r#"plane="Control""#, r#"route="unrouted""#, r#"status="400""#]),
        (1.0, [r#"plane="Control""#, r#"route="/v2/sandboxes""#, r#"status="201""#]),
    ] {
        assert!((count(&rig, requests, &words).await - number).abs() < 0.5, "{words:?}");
    }
    assert!(count(&rig, "sandbar_request_duration_seconds_count", &[r#"plane="Port""#]).await > 0.5);

    let before = count(&rig, "sandbar_connections", &[]).await;
    let streams =
        [TcpStream::connect(rig.address).await.unwrap(), TcpStream::connect(rig.address).await.unwrap()];
    let counted = async |wanted: f64| {
        let seen = async { while (count(&rig, "sandbar_connections", &[]).await - wanted).abs() > 0.5 {} };
        tokio::time::timeout(PATIENCE, seen).await.expect("connections are counted as they are");
    };
    counted(before + 2.0).await;
    drop(streams);
    counted(before).await;

    let text = rig.ask(Method::GET, "/metrics", &[], "").await.text();
    for private in [sandbox.id.as_str(), &sandbox.token, &rig.key, "secret-path", "made/up"] {
        assert!(!text.contains(private), "{private}: {text}");
    }
}
