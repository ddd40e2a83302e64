//! Signed URLs that carry no routing headers: the signature says which sandbox (the wire spec's section 7).

use std::time::{SystemTime, UNIX_EPOCH};

use http::{Method, StatusCode};
use sandbar_wire::envd::{Operation, sign};
use serde_json::{Value, json};

use crate::common::Rig;

fn url(path: &str, operation: Operation, token: &str, expiration: Option<i64>) -> String {
    let signature = sign(path, operation, "", token, expiration);
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("path", path).append_pair("signature", &signature);
    if let Some(expiration) = expiration {
        query.append_pair("signature_expiration", &expiration.to_string());
    }
    format!("/files?{}", query.finish())
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    i64::try_from(now).expect("a time of this age")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signature_alone_leads_to_its_sandbox() {
    let rig = Rig::local().await;
    let (one, other) =
        (rig.create(json!({"templateID": "base"})).await, rig.create(json!({"templateID": "base"})).await);
    let octets = [("content-type", "application/octet-stream")];
    for sandbox in [&one, &other] {
        let written = rig
            .ask(
                Method::POST,
                &url("/tmp/a", Operation::Write, &sandbox.token, None),
                &octets,
                sandbox.id.clone(),
            )
            .await;
        assert_eq!(written.status, StatusCode::OK, "{}", written.text());
    }
    for sandbox in [&one, &other] {
        let read = rig
            .ask(Method::GET, &url("/tmp/a", Operation::Read, &sandbox.token, Some(now() + 60)), &[], "")
            .await;
        assert_eq!((read.status, read.text()), (StatusCode::OK, sandbox.id.clone()));
    }
    // Signature first, then the time: who can't sign does not learn of it.
    let refused = async |target: String, message: &str| {
        let reply = rig.ask(Method::GET, &target, &[], "").await;
        assert_eq!(reply.json(), json!({"code": 401, "message": message}), "{target}");
    };
    refused(url("/tmp/a", Operation::Read, &one.token, Some(now() - 5)), "signature is already expired")
        .await;
    refused(url("/tmp/a", Operation::Read, "another", Some(now() - 5)), "invalid signature").await;
    refused(url("/tmp/a", Operation::Write, &one.token, None), "invalid signature").await;
    refused(
        url("/tmp/a", Operation::Read, &one.token, None).replace("%2Ftmp%2Fa", "%2Ftmp%2Fb"),
        "invalid signature",
    )
    .await;
    refused(url("/tmp/a", Operation::Read, &one.traffic, None), "invalid signature").await;
    // With headers the signature is judged with the named sandbox' token alone.
    let headers = [("e2b-sandbox-id", one.id.as_str()), ("e2b-sandbox-port", "49983")];
    let foreign =
        rig.ask(Method::GET, &url("/tmp/a", Operation::Read, &other.token, None), &headers, "").await;
    assert_eq!(foreign.json(), json!({"code": 401, "message": "invalid signature"}));
    // It dies with its sandbox.
    let signed = url("/tmp/a", Operation::Read, &one.token, None);
    rig.control(Method::DELETE, &format!("/sandboxes/{}", one.id), Value::Null).await;
    let reply = rig.ask(Method::GET, &signed, &[], "").await;
    assert!(matches!(reply.status.as_u16(), 401 | 502), "{}", reply.text());
}

/// Whoever has a signed URL acts as whom it names, and not as whom he would like to be.
#[tokio::test(flavor = "multi_thread")]
async fn a_signature_binds_its_user() {
    let rig = Rig::local().await;
    let sandbox = rig.create(json!({"templateID": "base"})).await;
    let route = [("e2b-sandbox-id", sandbox.id.as_str()), ("e2b-sandbox-port", "49983")];
    // "root:", as SDKs name a user.
    let as_root = ("authorization", "Basic cm9vdDo=");
    for (name, routed) in [("bare", &[][..]), ("routed", &route[..])] {
        let headers = [routed, &[as_root, ("content-type", "application/octet-stream")]].concat();
        let target = url(name, Operation::Write, &sandbox.token, None);
        let written = rig.ask(Method::POST, &target, &headers, "x").await;
        assert_eq!(written.status, StatusCode::OK, "{}", written.text());
        assert_eq!(written.json()[0]["path"], format!("/home/user/{name}"));
        let owner = sandbar::Command::shell(format!("stat -c %U /home/user/{name}"));
        let owner = rig.sandbox(&sandbox.id).await.commands().run(&owner).await.expect("it runs");
        assert_eq!(owner.stdout_lossy(), "user\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_guests_have_says_what_is_missing() {
    let rig = Rig::memory().await;
    for (method, path) in
        [(Method::GET, "/files?path=a"), (Method::POST, "/process.Process/Start"), (Method::GET, "/envs")]
    {
        let reply = rig.ask(method, path, &[], "").await;
        assert_eq!((reply.status, &reply.json()["code"]), (StatusCode::BAD_REQUEST, &json!(400)), "{path}");
        assert!(reply.text().contains("e2b-sandbox-id"), "{}", reply.text());
    }
}
