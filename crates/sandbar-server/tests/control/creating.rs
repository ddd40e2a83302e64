use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::common::{Rig, ask};
use crate::{detail, get, kill, made, message, post};

const REQUIRED: [&str; 4] = ["templateID", "sandboxID", "clientID", "envdVersion"];

#[tokio::test]
async fn both_generations_make_what_sdks_demand() {
    let rig = Rig::memory().await;
    let second =
        post(&rig, "/v2/sandboxes", json!({"templateID": "base", "metadata": {}, "envVars": {}})).await;
    let first = post(&rig, "/sandboxes", json!({"templateID": "base"})).await;
    let secure = post(&rig, "/sandboxes", json!({"templateID": "base", "secure": true})).await;
    for reply in [&second, &first, &secure] {
        assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.text());
        let body = reply.json();
        for field in REQUIRED {
            assert!(body[field].is_string(), "{field} in {body}");
        }
        let id = body["sandboxID"].as_str().unwrap();
        assert!(id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()), "{id}");
    }
    // Of the first generation one asks for a token only if it was wanted.
    assert!(first.json()["envdAccessToken"].is_null());
    assert!(secure.json()["envdAccessToken"].is_string() && second.json()["envdAccessToken"].is_string());

    let id = second.json()["sandboxID"].as_str().unwrap().to_owned();
    let seen = detail(&rig, &id).await;
    for field in ["startedAt", "endAt", "cpuCount", "memoryMB", "diskSizeMB", "state", "envdVersion"] {
        assert!(!seen[field].is_null(), "{field} in {seen}");
    }
    assert_eq!(seen["state"], "running");
    assert_eq!(seen["envdAccessToken"], second.json()["envdAccessToken"]);
    assert_eq!(seen["lifecycle"], json!({"autoResume": false, "onTimeout": "kill"}));

    assert_eq!(kill(&rig, &id).await.status, StatusCode::NO_CONTENT);
    for id in [id.as_str(), "nonexistingsandbox"] {
        let text = message(&kill(&rig, id).await, 404);
        assert_eq!(text, format!("Sandbox \"{id}\" doesn't exist or you don't have access to it"));
    }
}

#[tokio::test]
async fn what_has_no_meaning_is_refused_and_makes_nothing() {
    let rig = Rig::memory().await;
    let base = |more: Value| {
        let mut body = json!({"templateID": "base"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let cases = [
        (json!({}), "templateID"),
        (base(json!({"timeout": 0})), "timeout"),
        (base(json!({"timeout": -5})), "timeout"),
        (base(json!({"timeout": 86_401})), "Timeout cannot be greater than 24 hours"),
        (base(json!({"timeout": "5"})), "invalid body"),
        // Bug 28 of those that others had: it was accepted and ignored.
        (base(json!({"autoPauseMemory": false})), "autoPause"),
        (base(json!({"autoPause": true, "autoPauseMemory": false})), "files only"),
        (
            base(json!({"autoPause": true, "autoPauseMemory": false, "autoResume": {"enabled": true}})),
            "autoResume",
        ),
        (base(json!({"iam": {"tokens": {"a": {"audience": "b"}}}})), "iam"),
        (base(json!({"network": {"egressProxy": {"address": "p.test:1"}}})), "egressProxy"),
        (base(json!({"network": {"httpsPorts": [443]}})), "httpsPorts"),
        (base(json!({"network": {"maskRequestHost": "a b"}})), "maskRequestHost"),
        (base(json!({"network": {"allowOut": ["a.test"]}})), "ALL_TRAFFIC"),
        (base(json!({"network": {"denyOut": ["a.test"]}})), "invalid denied CIDR"),
        (base(json!({"envVars": {"NOT-A-NAME": "s3cret"}})), "NOT-A-NAME"),
        (base(json!({"metadata": {"sandbar-server/tenant": "other"}})), "reserved"),
        (base(json!({"metadata": {"sandbar.tenant": "other"}})), "reserved"),
        (base(json!({"volumeMounts": [{"name": "v", "path": "relative"}]})), "absolute"),
        (base(json!({"volumeMounts": [{"name": "v", "path": "/a/../b"}]})), "absolute"),
    ];
    for (body, word) in cases {
        let text = message(&post(&rig, "/v2/sandboxes", body.clone()).await, 400);
        assert!(text.contains(word) && !text.contains("s3cret"), "{body}: {text}");
    }
    let private = base(json!({"network": {"allowPublicTraffic": false}}));
    assert!(message(&post(&rig, "/sandboxes", private).await, 400).contains("secure"));
    let missing = base(json!({"volumeMounts": [{"name": "nowhere", "path": "/mnt/v"}]}));
    assert!(message(&post(&rig, "/v2/sandboxes", missing).await, 404).contains("nowhere"));
    assert!(
        message(&post(&rig, "/v2/sandboxes", json!({"templateID": "no-such"})).await, 404)
            .contains("no-such")
    );
    assert_eq!(get(&rig, "/v2/sandboxes").await.json(), json!([]));
}

#[tokio::test]
async fn errors_of_any_kind_have_the_shape() {
    let rig = Rig::memory().await;
    let id = made(&rig).await;
    let key = [("x-api-key", rig.key.as_str())];
    let raw = async |method, path: &str, body: &'static str| {
        ask(rig.address, method, path, &key, body.into()).await
    };
    message(&raw(Method::POST, "/v2/sandboxes", "{").await, 400);
    message(&raw(Method::POST, "/v2/sandboxes", "").await, 400);
    message(&raw(Method::GET, "/v2/sandboxes?limit=x", "").await, 400);
    message(&raw(Method::GET, "/sandboxes/a-b-c", "").await, 400);
    message(&raw(Method::GET, "/sandboxes/..%2Fx", "").await, 400);
    message(&raw(Method::GET, "/sandboxes/%ff", "").await, 400);
    message(&raw(Method::PATCH, "/v2/sandboxes", "").await, 405);
    message(&raw(Method::GET, "/v9/sandboxes", "").await, 404);
    message(&ask(rig.address, Method::GET, "/v2/sandboxes", &[], "".into()).await, 401);
    message(
        &ask(rig.address, Method::GET, "/v2/sandboxes", &[("x-api-key", "e2b_no")], "".into()).await,
        401,
    );
    // The id of long ago has a second part.
    assert_eq!(get(&rig, &format!("/sandboxes/{id}-sandbar")).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_request_that_comes_again_makes_no_second_sandbox() {
    let rig = Rig::memory().await;
    let other = rig.other_key().await;
    let send = async |api: &str, key: &str, body: Value| {
        let headers = [("x-api-key", api), ("idempotency-key", key)];
        ask(rig.address, Method::POST, "/v2/sandboxes", &headers, body.to_string().into()).await
    };
    let body = json!({"templateID": "base", "metadata": {"a": "b"}});
    let own = rig.key.as_str();
    let twins = futures::future::join_all((0..6).map(|_| send(own, "abc-1", body.clone()))).await;
    let ids: Vec<_> = twins.iter().map(|reply| reply.json()["sandboxID"].clone()).collect();
    assert!(twins.iter().all(|reply| reply.status == StatusCode::CREATED));
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(twins[0].json(), twins[5].json());

    message(&send(own, "abc-1", json!({"templateID": "base", "timeout": 7})).await, 422);
    message(&send(own, "NO", body.clone()).await, 400);
    assert_ne!(send(own, "abc-2", body.clone()).await.json()["sandboxID"], ids[0]);
    // Another's keys are its own.
    assert_ne!(send(&other, "abc-1", body.clone()).await.json()["sandboxID"], ids[0]);
    assert_eq!(get(&rig, "/v2/sandboxes").await.json().as_array().unwrap().len(), 2);

    kill(&rig, ids[0].as_str().unwrap()).await;
    message(&send(own, "abc-1", body).await, 409);
}
