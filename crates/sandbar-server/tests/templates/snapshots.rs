use http::StatusCode;
use serde_json::{Value, json};

use crate::common::Rig;

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_outlives_its_sandbox_and_is_a_template() {
    let rig = Rig::local().await;
    let made = rig.create(json!({ "templateID": "base" })).await;
    rig.said(&made.id, "echo one > file").await;
    let target = format!("/sandboxes/{}/snapshots", made.id);
    let first = rig.post(&target, json!({ "name": "Kept:v1" })).await;
    assert_eq!(first.status, StatusCode::CREATED, "{}", first.text());
    let first = first.json()["snapshotID"].as_str().unwrap().to_owned();
    assert!(first.ends_with("/kept:v1"), "{first}");
    rig.said(&made.id, "echo two > file").await;
    let second = rig.post(&target, Value::Null).await;
    assert_eq!(second.status, StatusCode::CREATED, "{}", second.text());
    let second = second.json()["snapshotID"].as_str().unwrap().to_owned();
    assert!(second.ends_with(":default"), "{second}");
    assert_eq!(rig.post(&target, json!({ "memory": true })).await.status, StatusCode::BAD_REQUEST);

    let page = rig.get("/snapshots?limit=1").await;
    let next = page.headers["x-next-token"].to_str().unwrap().to_owned();
    assert_eq!(page.json()[0]["snapshotID"], json!(second));
    let page = rig.get(&format!("/snapshots?limit=1&nextToken={next}")).await;
    assert_eq!(page.json()[0]["snapshotID"], json!(first));
    assert!(page.headers.get("x-next-token").is_none());
    assert_eq!(rig.get("/snapshots?nextToken=x").await.status, StatusCode::BAD_REQUEST);
    assert_eq!(rig.get("/snapshots?name=kept").await.json().as_array().unwrap().len(), 1);
    let of = format!("/snapshots?sandboxID={}", made.id);
    assert_eq!(rig.get(&of).await.json().as_array().unwrap().len(), 2);
    assert_eq!(rig.get("/snapshots?sandboxID=snone").await.json(), json!([]));
    assert_eq!(rig.get("/templates").await.json(), json!([]));

    assert_eq!(rig.delete(&format!("/sandboxes/{}", made.id)).await.status, StatusCode::NO_CONTENT);
    assert_eq!(rig.post(&target, Value::Null).await.status, StatusCode::NOT_FOUND);
    for (snapshot, content) in [(&first, "one"), (&second, "two")] {
        let restored = rig.create(json!({ "templateID": snapshot })).await;
        assert_eq!(rig.said(&restored.id, "cat file").await, content);
    }
    let other = rig.other_key().await;
    let headers = [("x-api-key", other.as_str()), ("content-type", "application/json")];
    let body = json!({ "templateID": second }).to_string();
    let foreign = rig.ask(http::Method::POST, "/v2/sandboxes", &headers, body).await;
    assert_eq!(foreign.status, StatusCode::NOT_FOUND, "{}", foreign.text());
    assert_eq!(rig.ask(http::Method::GET, "/snapshots", &headers, "").await.json(), json!([]));

    for snapshot in [&first, &second] {
        let target = format!("/templates/{}", snapshot.replace('/', "%2F").replace(':', "%3A"));
        let foreign = rig.ask(http::Method::DELETE, &target, &headers, "").await;
        assert_eq!(foreign.status, StatusCode::NOT_FOUND, "{}", foreign.text());
        assert_eq!(rig.delete(&target).await.status, StatusCode::NO_CONTENT);
        assert_eq!(rig.delete(&target).await.status, StatusCode::NOT_FOUND);
    }
    assert_eq!(rig.get("/snapshots").await.json(), json!([]));
}
