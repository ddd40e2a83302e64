use http::{Method, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::common::Rig;
use crate::{detail, kill, made, message, post};

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

/// Bug 16 of those that others had: a connect without a timeout cut a long one short.
#[tokio::test]
async fn a_connect_extends_and_never_shortens() {
    let rig = Rig::memory().await;
    let id = rig.create(json!({"templateID": "base", "timeout": 1800})).await.id;
    let before = detail(&rig, &id).await["endAt"].clone();
    for (path, body) in [
        (format!("/v2/sandboxes/{id}/connect"), json!({})),
        (format!("/v2/sandboxes/{id}/connect"), Value::Null),
        (format!("/sandboxes/{id}/connect"), json!({"timeout": 5})),
    ] {
        let reply = post(&rig, &path, body).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
        assert_eq!(reply.json()["sandboxID"], id.as_str());
    }
    assert_eq!(detail(&rig, &id).await["endAt"], before);
    post(&rig, &format!("/v2/sandboxes/{id}/connect"), json!({"timeout": 3600})).await;
    assert!(time(&detail(&rig, &id).await["endAt"]) > time(&before));
    // The older form demands one.
    message(&post(&rig, &format!("/sandboxes/{id}/connect"), json!({})).await, 400);
    message(&post(&rig, &format!("/v2/sandboxes/{id}/connect"), json!({"timeout": 0})).await, 400);
}

#[tokio::test]
async fn a_timeout_is_set_either_way_and_a_refresh_only_extends() {
    let rig = Rig::memory().await;
    let id = rig.create(json!({"templateID": "base", "timeout": 600})).await.id;
    let set = async |seconds: i64| {
        post(&rig, &format!("/sandboxes/{id}/timeout"), json!({"timeout": seconds})).await
    };
    let end = async || time(&detail(&rig, &id).await["endAt"]);
    let first = end().await;
    assert_eq!(set(60).await.status, StatusCode::NO_CONTENT);
    let shorter = end().await;
    assert!(shorter < first);
    let refresh = async |body: Value| post(&rig, &format!("/sandboxes/{id}/refreshes"), body).await.status;
    assert_eq!(refresh(json!({"duration": 1})).await, StatusCode::NO_CONTENT);
    assert_eq!(end().await, shorter);
    assert_eq!(refresh(json!({"duration": 3600})).await, StatusCode::NO_CONTENT);
    assert!(end().await > first);
    assert!(message(&set(86_401).await, 400).contains("24 hours"));
    // Longer than it may live from its start on is cut.
    assert_eq!(set(86_400).await.status, StatusCode::NO_CONTENT);
    let started = time(&detail(&rig, &id).await["startedAt"]);
    assert!(end().await.duration_since(started).as_secs() <= 86_401);
}

#[tokio::test]
async fn paused_is_a_state_of_its_own() {
    let rig = Rig::memory().await;
    let made = rig.create(json!({"templateID": "base", "timeout": 600})).await;
    let id = made.id.as_str();
    let pause = async |body: Value| post(&rig, &format!("/sandboxes/{id}/pause"), body).await;
    assert!(message(&pause(json!({"memory": false})).await, 400).contains("files only"));
    assert_eq!(detail(&rig, id).await["state"], "running");
    assert_eq!(
        pause(json!({"memory": true, "requireHealthyGuest": true})).await.status,
        StatusCode::NO_CONTENT
    );
    assert!(message(&pause(json!({})).await, 409).contains("is already paused"));
    let paused = detail(&rig, id).await;
    assert_eq!((&paused["state"], &paused["pauseMode"]), (&json!("paused"), &json!("full")));
    // Its end is when it was paused, and it has none while it sleeps.
    assert!(time(&paused["endAt"]) <= Timestamp::now());
    assert_eq!(rig.sandbox(id).await.record().await.unwrap().deadline, None);

    for (path, body) in [("timeout", json!({"timeout": 5})), ("fork", json!({}))] {
        message(&post(&rig, &format!("/sandboxes/{id}/{path}"), body).await, 409);
    }
    message(&post(&rig, &format!("/sandboxes/{id}/refreshes"), json!({})).await, 404);
    message(&post(&rig, &format!("/v2/sandboxes/{id}/connect"), json!({"memory": false})).await, 400);
    let resumed = post(&rig, &format!("/v2/sandboxes/{id}/connect"), json!({})).await;
    assert_eq!(resumed.status, StatusCode::CREATED, "{}", resumed.text());
    assert_eq!(resumed.json()["envdAccessToken"], made.token.as_str());
    let running = detail(&rig, id).await;
    assert_eq!(running["state"], "running");
    let left = time(&running["endAt"]).duration_since(Timestamp::now()).as_secs();
    assert!((1..=301).contains(&left), "{left}");
    // Of long ago.
    let resume = async |body: Value| post(&rig, &format!("/sandboxes/{id}/resume"), body).await;
    message(&resume(json!({})).await, 409);
    pause(Value::Null).await;
    assert_eq!(resume(json!({"timeout": 20, "autoPause": true})).await.status, StatusCode::CREATED);
    assert_eq!(detail(&rig, id).await["lifecycle"]["onTimeout"], "pause");
    // What is paused is killed as well.
    pause(json!({})).await;
    assert_eq!(kill(&rig, id).await.status, StatusCode::NO_CONTENT);
    message(&post(&rig, &format!("/v2/sandboxes/{id}/connect"), json!({})).await, 404);
}

/// Bug 26 of those that others had: a connect was told 200 of a sandbox that was on its way out.
#[tokio::test]
async fn a_connect_beside_a_kill_says_one_or_the_other() {
    let rig = Rig::memory().await;
    for _ in 0..10 {
        let id = made(&rig).await;
        let (killed, connected) = tokio::join!(kill(&rig, &id), async {
            post(&rig, &format!("/v2/sandboxes/{id}/connect"), json!({})).await
        });
        assert_eq!(killed.status, StatusCode::NO_CONTENT);
        assert!(matches!(connected.status.as_u16(), 200 | 404 | 409), "{}", connected.text());
        message(&post(&rig, &format!("/v2/sandboxes/{id}/connect"), json!({})).await, 404);
    }
}

#[tokio::test]
async fn a_fork_answers_for_each_copy() {
    let rig = Rig::memory().await;
    let parent = rig.create(json!({"templateID": "base", "metadata": {"a": "b"}})).await;
    let fork = async |body: Value| post(&rig, &format!("/sandboxes/{}/fork", parent.id), body).await;
    let forked = fork(json!({"count": 2, "timeout": 60})).await;
    assert_eq!(forked.status, StatusCode::CREATED, "{}", forked.text());
    let forked = forked.json();
    assert_eq!(forked.as_array().unwrap().len(), 2);
    for copy in forked.as_array().unwrap() {
        assert!(copy.get("error").is_none(), "{copy}");
        let id = copy["sandbox"]["sandboxID"].as_str().unwrap();
        assert_ne!(id, parent.id);
        assert_ne!(copy["sandbox"]["envdAccessToken"], parent.token.as_str());
        let seen = detail(&rig, id).await;
        assert_eq!(seen["metadata"], json!({"a": "b"}));
        assert!(time(&seen["endAt"]).duration_since(Timestamp::now()).as_secs() <= 60);
    }
    assert_eq!(fork(Value::Null).await.json().as_array().unwrap().len(), 1);
    for count in [0, 101, -1, 100] {
        message(&fork(json!({"count": count})).await, 400);
    }
    kill(&rig, &parent.id).await;
    message(&fork(json!({})).await, 404);
}

#[tokio::test]
async fn a_template_that_pauses_says_so() {
    let rig = Rig::memory().await;
    let body = json!({"templateID": "base", "autoPause": true, "autoPauseMemory": true, "autoResume": {"enabled": true}});
    let id = rig.create(body).await.id;
    assert_eq!(detail(&rig, &id).await["lifecycle"], json!({"autoResume": true, "onTimeout": "pause"}));
    let reply =
        rig.control(Method::PUT, &format!("/sandboxes/{id}/network"), json!({"denyOut": ["x.test"]})).await;
    assert!(message(&reply, 400).contains("invalid denied CIDR"));
}
