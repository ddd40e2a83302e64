use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::common::Rig;

#[tokio::test(flavor = "multi_thread")]
async fn tags_move_and_go_and_the_default_one_stays() {
    let rig = Rig::local().await;
    let order = json!({ "fromTemplate": "base", "steps": [{ "type": "ENV", "args": ["A", "1"] }] });
    let build = rig.build("tagged", order).await;
    let assigned = rig.post("/templates/tags", json!({ "target": "Tagged", "tags": ["v1", "v2"] })).await;
    assert_eq!(assigned.status, StatusCode::CREATED, "{}", assigned.text());
    assert_eq!(assigned.json(), json!({ "buildID": build.id, "tags": ["v1", "v2"] }));
    let tags = rig.get(&format!("/templates/{}/tags", build.template)).await.json();
    let tags: Vec<_> = tags.as_array().unwrap().iter().map(|tag| tag["tag"].as_str().unwrap()).collect();
    assert_eq!(tags.len(), 3, "{tags:?}");

    let delete = async |body: Value| rig.control(Method::DELETE, "/templates/tags", body).await.status;
    assert_eq!(delete(json!({ "name": "tagged", "tags": ["v1"] })).await, StatusCode::NO_CONTENT);
    assert_eq!(delete(json!({ "name": "tagged", "tags": ["v1"] })).await, StatusCode::NOT_FOUND);
    assert_eq!(delete(json!({ "name": "tagged", "tags": ["default"] })).await, StatusCode::BAD_REQUEST);
    assert_eq!(delete(json!({ "name": "unknown", "tags": ["v1"] })).await, StatusCode::NOT_FOUND);
    let exists = async |name: &str| rig.get(&format!("/templates/aliases/{name}")).await.status;
    assert_eq!(exists("tagged").await, StatusCode::OK);
    assert_eq!(exists("tagged%3Av2").await, StatusCode::OK);
    assert_eq!(exists("tagged%3Av1").await, StatusCode::NOT_FOUND);
    assert_eq!(exists("base").await, StatusCode::OK);
    assert_eq!(exists("unknown").await, StatusCode::NOT_FOUND);
    let uuid = "8f14e45f-ceea-467f-a8d4-0f2f3b1c2d3e";
    let reply = rig.post("/templates/tags", json!({ "target": "tagged", "tags": [uuid] })).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);

    let listed = rig.get("/templates").await.json();
    assert_eq!(listed[0]["buildStatus"], json!("ready"), "{listed}");
    assert_eq!(listed[0]["public"], json!(false));
    let one = rig.get("/templates/tagged").await.json();
    assert_eq!(one["builds"][0]["buildID"], json!(build.id), "{one}");
    let patch = async |body: Value| rig.control(Method::PATCH, "/v2/templates/tagged", body).await;
    assert_eq!(patch(json!({ "public": false })).await.status, StatusCode::OK);
    assert_eq!(patch(json!({ "public": true })).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(rig.delete("/templates/base").await.status, StatusCode::FORBIDDEN);

    // A sandbox that was made from it keeps what it needs, and no longer.
    let made = rig.create(json!({ "templateID": "tagged:v2" })).await;
    assert_eq!(rig.delete("/templates/tagged").await.status, StatusCode::NO_CONTENT);
    assert_eq!(rig.delete("/templates/tagged").await.status, StatusCode::NOT_FOUND);
    assert_eq!(rig.said(&made.id, "echo $A").await, "1");
    rig.has_templates(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_tenant_is_told_the_same_as_of_what_does_not_exist() {
    let rig = Rig::local().await;
    let build = rig.build("mine", json!({ "fromTemplate": "base" })).await;
    let other = rig.other_key().await;
    let ask = async |method: Method, target: &str, body: Value| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        rig.ask(method, target, &[("x-api-key", other.as_str())], body).await
    };
    for (method, target, body) in [
        (Method::GET, "/templates/ITS", Value::Null),
        (Method::DELETE, "/templates/ITS", Value::Null),
        (Method::PATCH, "/v2/templates/ITS", json!({ "public": false })),
        (Method::GET, "/templates/ITS/tags", Value::Null),
        (Method::GET, "/templates/aliases/ITS", Value::Null),
        (Method::GET, "/templates/ITS/builds/BUILD/status", Value::Null),
        (Method::GET, "/templates/ITS/builds/BUILD/logs", Value::Null),
        (Method::POST, "/v2/templates/ITS/builds/BUILD", json!({ "fromTemplate": "base" })),
        (Method::POST, "/templates/tags", json!({ "target": "ITS", "tags": ["x"] })),
        (Method::DELETE, "/templates/tags", json!({ "name": "ITS", "tags": ["x"] })),
        (Method::POST, "/v2/sandboxes", json!({ "templateID": "ITS" })),
    ] {
        let with = |id: &str| {
            let body: Value = serde_json::from_str(&body.to_string().replace("ITS", id)).unwrap();
            (target.replace("ITS", id).replace("BUILD", &build.id), body)
        };
        for name in [build.template.as_str(), "mine"] {
            let (foreign, body) = with(name);
            let foreign = ask(method.clone(), &foreign, body).await;
            let unknown_name = "n".repeat(name.len());
            let (unknown, body) = with(&unknown_name);
            let unknown = ask(method.clone(), &unknown, body).await;
            assert_eq!(
                foreign.status,
                unknown.status,
                "{method} {target}: {} {}",
                foreign.text(),
                unknown.text()
            );
            assert_eq!(foreign.text().replace(name, &unknown_name), unknown.text(), "{method} {target}");
            assert!(foreign.status == StatusCode::NOT_FOUND, "{method} {target}: {}", foreign.text());
        }
    }
    assert_eq!(ask(Method::GET, "/templates", Value::Null).await.json(), json!([]));
    // The same name is another template for another tenant.
    let reply = ask(Method::POST, "/v3/templates", json!({ "name": "mine" })).await;
    assert_eq!(reply.status, StatusCode::ACCEPTED, "{}", reply.text());
    assert_ne!(reply.json()["templateID"], json!(build.template));
    assert_eq!(rig.get("/templates/mine").await.json()["templateID"], json!(build.template));
    let names = rig.get("/templates/mine").await.json()["names"][0].as_str().unwrap().to_owned();
    let reply = ask(Method::POST, "/v3/templates", json!({ "name": names })).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{}", reply.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_numbers_that_are_not_valid_are_refused() {
    let rig = Rig::local().await;
    for body in [
        json!({}),
        json!({ "name": "" }),
        json!({ "name": "a b" }),
        json!({ "name": "a/b/c" }),
        json!({ "name": "../a" }),
        json!({ "name": "a", "tags": [""] }),
        json!({ "name": "a:8f14e45f-ceea-467f-a8d4-0f2f3b1c2d3e" }),
        json!({ "name": "a", "cpuCount": 0 }),
        json!({ "name": "a", "memoryMB": 1 }),
        json!({ "name": "a", "minFreeDiskMb": -1 }),
        json!({ "name": 1 }),
    ] {
        let reply = rig.post("/v3/templates", body.clone()).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{body} {}", reply.text());
        assert_eq!(reply.json()["code"], json!(400), "{body}");
    }
    let memory = Rig::memory().await;
    let reply = memory.post("/v3/templates", json!({ "name": "a" })).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{}", reply.text());
    for (method, target) in
        [(Method::GET, "/secrets"), (Method::POST, "/secrets"), (Method::DELETE, "/secrets/x")]
    {
        let reply = memory.control(method, target, json!({ "name": "a", "value": "b" })).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{}", reply.text());
        assert!(!reply.text().contains("\"b\""));
    }
}
