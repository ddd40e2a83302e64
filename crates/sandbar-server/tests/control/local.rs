//! What needs processes and a network of their own.

use std::time::Duration;

use http::{Method, StatusCode};
use sandbar::{Command, EgressPolicy, Sandbox};
use serde_json::{Value, json};

use crate::common::{PATIENCE, Rig};
use crate::{detail, get, post};

async fn says(sandbox: &dyn Sandbox, script: &str) -> String {
    let output = sandbox.commands().run(&Command::shell(script)).await.expect("it runs");
    output.stdout_lossy().trim().to_owned()
}

/// Looks until it is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("in time: {what}"));
}

#[tokio::test]
async fn commands_have_the_environment_of_e2b_and_the_caller_s() {
    let rig = Rig::local().await;
    let id = rig
        .create(json!({"templateID": "base", "envVars": {"MINE": "of me", "E2B_SANDBOX": "own"}}))
        .await
        .id;
    let sandbox = rig.sandbox(&id).await;
    let said = says(&*sandbox, "echo $MINE,$E2B_SANDBOX,$E2B_SANDBOX_ID,$E2B_TEMPLATE_ID").await;
    assert_eq!(said, format!("of me,own,{id},base"));
    let metrics = get(&rig, &format!("/sandboxes/{id}/metrics")).await.json();
    assert!(metrics[0]["cpuCount"].as_u64().unwrap() >= 1, "{metrics}");
    assert!(detail(&rig, &id).await["memoryMB"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn processes_go_on_after_a_pause_that_outlasts_the_timeout() {
    let rig = Rig::local().await;
    let id = rig.create(json!({"templateID": "base", "timeout": 20})).await.id;
    let sandbox = rig.sandbox(&id).await;
    let pid = says(&*sandbox, "sleep 1000 >/dev/null 2>&1 & echo $!").await;
    // Nearly at its end, and paused before that.
    post(&rig, &format!("/sandboxes/{id}/timeout"), json!({"timeout": 3})).await;
    let paused = post(&rig, &format!("/sandboxes/{id}/pause"), json!({"requireHealthyGuest": true})).await;
    assert_eq!(paused.status, StatusCode::NO_CONTENT, "{}", paused.text());
    assert_eq!(sandbox.record().await.unwrap().deadline, None);
    let resumed = post(&rig, &format!("/v2/sandboxes/{id}/connect"), json!({"timeout": 60})).await;
    assert_eq!(resumed.status, StatusCode::CREATED, "{}", resumed.text());
    assert_eq!(says(&*sandbox, &format!("kill -0 {pid} && echo lives")).await, "lives");
    assert!(sandbox.record().await.unwrap().deadline.is_some());
}

#[tokio::test]
async fn a_timeout_kills_or_pauses_as_it_was_wished() {
    let rig = Rig::local().await;
    let pauses = rig.create(json!({"templateID": "base", "timeout": 60, "autoPause": true})).await.id;
    let ends = rig.create(json!({"templateID": "base", "timeout": 60})).await.id;
    for id in [&pauses, &ends] {
        let set = post(&rig, &format!("/sandboxes/{id}/timeout"), json!({"timeout": 0})).await;
        assert_eq!(set.status, StatusCode::NO_CONTENT, "{}", set.text());
    }
    until("one is paused", async || {
        let reply = get(&rig, &format!("/sandboxes/{pauses}")).await;
        reply.json()["state"] == "paused"
    })
    .await;
    until("one is gone", async || {
        get(&rig, &format!("/sandboxes/{ends}")).await.status == StatusCode::NOT_FOUND
    })
    .await;
    let list = get(&rig, "/v2/sandboxes").await.json();
    assert_eq!(list.as_array().unwrap().len(), 1);
    // Who looks at all sandboxes notes it without being asked.
    until("the pause is noted", async || {
        let logs = get(&rig, &format!("/v2/sandboxes/{pauses}/logs?search=paused")).await.json();
        logs["logs"].as_array().is_some_and(|logs| logs.len() == 1)
    })
    .await;
    let resumed = post(&rig, &format!("/v2/sandboxes/{pauses}/connect"), json!({"timeout": 60})).await;
    assert_eq!(resumed.status, StatusCode::CREATED, "{}", resumed.text());
}

#[tokio::test]
async fn the_network_is_what_was_said_last() {
    let rig =
        Rig::local_with(|_, config| config.default_egress = sandbar_server::DefaultEgress::Internet).await;
    let network = json!({
        "allowOut": ["a.test", "1.1.1.1"],
        "denyOut": ["0.0.0.0/0"],
        "allowPublicTraffic": false,
        "maskRequestHost": "custom.example.com:${PORT}",
        "rules": {"a.test": [{"transform": {"headers": {"X-Key": "s3cret"}}}]},
    });
    let made = rig.create(json!({"templateID": "base", "network": network})).await;
    let (id, sandbox) = (made.id.as_str(), rig.sandbox(&made.id).await);
    assert!(!made.traffic.is_empty());
    let policy = async || sandbox.record().await.unwrap().egress.policy.unwrap();
    assert_eq!(policy().await.kind(), "rules");
    let shown = detail(&rig, id).await["network"].clone();
    assert_eq!(shown["allowOut"], json!(["a.test", "1.1.1.1"]));
    assert_eq!(shown["allowPublicTraffic"], false);
    assert_eq!(shown["maskRequestHost"], "custom.example.com:${PORT}");
    assert!(shown.to_string().contains("X-Key") && !shown.to_string().contains("s3cret"), "{shown}");

    let put =
        async |body: Value| rig.control(Method::PUT, &format!("/sandboxes/{id}/network"), body).await.status;
    assert_eq!(put(json!({"allow_internet_access": false})).await, StatusCode::NO_CONTENT);
    assert_eq!(policy().await, EgressPolicy::DenyAll);
    let seen = detail(&rig, id).await;
    assert_eq!(seen["allowInternetAccess"], false);
    // What is not named is cleared; who reaches the sandbox is as it was.
    assert_eq!(
        seen["network"],
        json!({"allowPublicTraffic": false, "maskRequestHost": "custom.example.com:${PORT}"})
    );
    assert_eq!(put(json!({})).await, StatusCode::NO_CONTENT);
    assert_eq!(policy().await, EgressPolicy::AllowAll);
    assert_eq!(put(json!({"allowOut": ["10.0.0.1"]})).await, StatusCode::BAD_REQUEST);
    assert_eq!(policy().await, EgressPolicy::AllowAll);
}

/// Bug 26 of those that others had, where destroying takes a while.
#[tokio::test]
async fn a_connect_beside_a_kill_is_never_an_error_of_the_server() {
    let rig = Rig::local().await;
    for _ in 0..4 {
        let id = rig.create(json!({"templateID": "base"})).await.id;
        let path = format!("/v2/sandboxes/{id}/connect");
        let connects = futures::future::join_all((0..8).map(|_| post(&rig, &path, json!({}))));
        let killing = format!("/sandboxes/{id}");
        let (killed, connected) = tokio::join!(rig.control(Method::DELETE, &killing, Value::Null), connects);
        assert_eq!(killed.status, StatusCode::NO_CONTENT, "{}", killed.text());
        for reply in connected {
            assert!(matches!(reply.status.as_u16(), 200 | 404 | 409), "{}", reply.text());
        }
        assert_eq!(post(&rig, &path, json!({})).await.status, StatusCode::NOT_FOUND);
    }
}
