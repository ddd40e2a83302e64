use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::common::{Rig, ask};
use crate::support::has_root;

#[tokio::test(flavor = "multi_thread")]
async fn a_build_does_its_steps_for_real_and_knows_them_again() {
    let rig = Rig::local().await;
    let mut ids = Vec::new();
    for round in 0..2 {
        let build = rig.register(json!({ "name": "App:V1", "tags": ["stable"], "cpuCount": 1 })).await;
        let tree = rig.upload(&build, 'a', &[("src/one", "1"), ("src/deep/two", "2")]).await;
        let tool = rig.upload(&build, 'b', &[("bin/tool", "#!/bin/sh\necho tool\n")]).await;
        let (app, bin) = if has_root() { ("/app", "/usr/local/bin/tool") } else { ("app", "bin/tool") };
        let mut steps = vec![
            json!({ "type": "ENV", "args": ["GREETING", "hello there"] }),
            json!({ "type": "COPY", "args": ["src", app, "", ""], "filesHash": tree, "forceUpload": true }),
            json!({ "type": "COPY", "args": ["bin/tool", bin, "", "0755"], "filesHash": tool }),
            json!({ "type": "WORKDIR", "args": ["/home/user/work"] }),
            json!({ "type": "RUN", "args": ["echo \"$GREETING from $(id -un)\" > said; echo a line"] }),
        ];
        if has_root() {
            steps.push(json!({ "type": "RUN", "args": ["id -un > /root-was-here", "root"] }));
            steps.push(json!({ "type": "RUN", "args": ["[ \"$(id -un)\" = user ]", ""] }));
        }
        let order = json!({ "fromImage": "e2bdev/base:latest", "steps": steps, "startCmd": "echo started > /tmp/started; sleep 600" });
        assert_eq!(rig.start(&build, order.clone()).await.status, StatusCode::ACCEPTED);
        let again = rig.start(&build, order).await;
        assert_eq!(again.status, StatusCode::BAD_REQUEST, "{}", again.text());
        let ended = rig.ended(&build).await;
        assert_eq!(ended.status, "ready", "{} {:?}", ended.reason, ended.log);
        assert_eq!(ended.says("CACHED [builder 5/"), round == 1, "{:?}", ended.log);
        assert_eq!(ended.log.iter().any(|line| line == "a line"), round == 0, "{:?}", ended.log);
        ids.push(build.template);
    }
    assert_eq!(ids[0], ids[1]);
    // The build before lost its tags, and nobody uses it.
    rig.has_templates(1).await;

    let made = rig.create(json!({ "templateID": "app:stable" })).await;
    let app = if has_root() { "/app" } else { "/home/user/app" };
    assert_eq!(
        rig.said(&made.id, &format!("cat {app}/one {app}/deep/two; stat -c %U {app}/one")).await,
        "12user"
    );
    let tool = if has_root() { "tool" } else { "/home/user/bin/tool" };
    assert_eq!(rig.said(&made.id, tool).await, "tool");
    assert_eq!(rig.said(&made.id, "cat /home/user/work/said").await, "hello there from user");
    assert_eq!(rig.said(&made.id, "echo $GREETING").await, "hello there");
    assert_eq!(
        rig.said(&made.id, "until [ -e /tmp/started ]; do :; done; cat /tmp/started").await,
        "started"
    );
    if has_root() {
        assert_eq!(rig.said(&made.id, "cat /root-was-here").await, "root");
    }
    let detail = rig.get(&format!("/sandboxes/{}", made.id)).await.json();
    assert_eq!(detail["templateID"], json!(ids[0]), "{detail}");
    assert_eq!(detail["cpuCount"], json!(1), "{detail}");

    // Steps that write nothing are the same layer, which no sandbox may have twice.
    let nothing = json!([{ "type": "RUN", "args": ["true"] }, { "type": "RUN", "args": ["true # again"] }]);
    let derived = rig.build("derived", json!({ "fromTemplate": "app:v1", "steps": nothing })).await;
    let made = rig.create(json!({ "templateID": derived.template })).await;
    assert_eq!(rig.said(&made.id, "cat /home/user/work/said").await, "hello there from user");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails_is_named_and_leaves_no_template() {
    let rig = Rig::local().await;
    let build = rig.register(json!({ "name": "broken" })).await;
    let steps =
        json!([{ "type": "RUN", "args": ["true"] }, { "type": "RUN", "args": ["echo last words; exit 3"] }]);
    let order = json!({ "fromTemplate": "base", "steps": steps });
    assert_eq!(rig.start(&build, order).await.status, StatusCode::ACCEPTED);
    let ended = rig.ended(&build).await;
    assert_eq!((ended.status.as_str(), &ended.reason["step"]), ("error", &json!("2")));
    let message = ended.reason["message"].as_str().unwrap();
    assert!(message.starts_with("RUN echo last words; exit 3: ended with exit code 3"), "{message}");
    assert!(ended.says("last words"), "{:?}", ended.log);
    rig.has_templates(0).await;
    let reply = rig.post("/v2/sandboxes", json!({ "templateID": "broken" })).await;
    assert_eq!(reply.status, StatusCode::NOT_FOUND, "{}", reply.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_ends_a_build() {
    let mut rig = Rig::local().await;
    let build = rig.register(json!({ "name": "endless" })).await;
    let order =
        json!({ "fromTemplate": "base", "steps": [{ "type": "RUN", "args": ["echo here; sleep 600"] }] });
    assert_eq!(rig.start(&build, order).await.status, StatusCode::ACCEPTED);
    let target = format!("/templates/{}/builds/{}/status", build.template, build.id);
    while !rig.get(&target).await.text().contains("here") {}
    assert_eq!(rig.delete("/templates/endless").await.status, StatusCode::NO_CONTENT);
    assert_eq!(rig.get(&target).await.status, StatusCode::NOT_FOUND);
    rig.stop().await;
    rig.has_templates(0).await;
    rig.has_no_sandbox().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_built_is_refused_before_anything_is_done() {
    let rig = Rig::local().await;
    let build = rig.register(json!({ "name": "refused" })).await;
    let run = json!([{ "type": "RUN", "args": ["true"] }]);
    let missing = json!([{ "type": "COPY", "args": ["a", "b"], "filesHash": "c".repeat(64) }]);
    for (order, words) in [
        (json!({ "steps": run }), "exactly one"),
        (json!({ "fromImage": "a", "fromTemplate": "b", "steps": run }), "exactly one"),
        (json!({ "fromImage": "debian:12", "steps": run }), "sandbar template pull"),
        (json!({ "fromTemplate": "unknown", "steps": run }), "doesn't exist"),
        (
            json!({ "fromImage": "e2bdev/base", "fromImageRegistry": { "type": "registry" } }),
            "fromImageRegistry",
        ),
        (json!({ "fromTemplate": "base", "steps": [{ "type": "ADD", "args": ["a"] }] }), "step 1 (ADD)"),
        (json!({ "fromTemplate": "base", "steps": missing }), "not uploaded"),
        (
            json!({ "fromTemplate": "base", "steps": [{ "type": "COPY", "args": ["a", "b"], "filesHash": "../x" }] }),
            "hash",
        ),
    ] {
        let reply = rig.start(&build, order.clone()).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{order} {}", reply.text());
        assert_eq!(reply.json()["code"], json!(400));
        assert!(reply.text().contains(words), "{order} {}", reply.text());
    }
    // None of that has started it.
    let order = json!({ "fromTemplate": "base" });
    assert_eq!(rig.start(&build, order).await.status, StatusCode::ACCEPTED);
    assert_eq!(rig.ended(&build).await.status, "ready");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_for_an_upload_is_good_once_and_needs_no_key() {
    let rig = Rig::memory().await;
    let put = async |target: &str, body: &'static str| {
        ask(rig.address, Method::PUT, target, &[], body.into()).await.status
    };
    assert_eq!(put("/uploads/0000", "x").await, StatusCode::FORBIDDEN);
    let local = Rig::local().await;
    let build = local.register(json!({ "name": "a" })).await;
    let hash = "d".repeat(64);
    let target = format!("/templates/{}/files/{hash}", build.template);
    let link = local.get(&target).await.json();
    assert_eq!(link["present"], json!(false));
    let url = link["url"].as_str().unwrap().to_owned();
    let path = url.split_once(&local.address.to_string()).unwrap().1.to_owned();
    let sent = ask(local.address, Method::PUT, &path, &[], "x".into()).await;
    assert_eq!(sent.status, StatusCode::OK, "{}", sent.text());
    let sent = ask(local.address, Method::PUT, &path, &[], "x".into()).await;
    assert_eq!(sent.status, StatusCode::FORBIDDEN, "{}", sent.text());
    assert_eq!(local.get(&target).await.json()["present"], json!(true));
    let other = local.other_key().await;
    let foreign = local.ask(Method::GET, &target, &[("x-api-key", &other)], "").await;
    assert_eq!(foreign.status, StatusCode::NOT_FOUND);
    // What is no archive is said by the step that copies it.
    let steps = json!([{ "type": "COPY", "args": ["a", "b"], "filesHash": hash }]);
    let started = local.start(&build, json!({ "fromTemplate": "base", "steps": steps })).await;
    assert_eq!(started.status, StatusCode::ACCEPTED, "{}", started.text());
    let ended = local.ended(&build).await;
    assert_eq!((ended.status.as_str(), &ended.reason["step"]), ("error", &Value::from("1")));
    assert!(ended.reason["message"].as_str().unwrap().contains("tar"), "{}", ended.reason);
}
