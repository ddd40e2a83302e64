use sandbar_core::{
    EgressCheck, EgressPolicy, ErrorKind, ProviderExt, Retry, Sandbox, SandboxExt, SandboxId, VerdictState,
    VerifyOptions,
};
use sandbar_http::testing::{Answer, Scripted};
use serde_json::{Value, json};

use crate::script::{absent, detail, made, provider, refused};

fn with(network: &Value) -> Answer {
    Answer::json(200, &detail("i1", json!({"network": network})))
}

async fn handle(server: &Scripted) -> std::sync::Arc<dyn Sandbox> {
    provider(server).require(&SandboxId::new("i1").unwrap()).await.unwrap()
}

#[tokio::test]
async fn an_update_says_all_that_is_to_be_in_force() {
    let server = Scripted::start().await;
    let closed = with(&json!({"denyOut": ["0.0.0.0/0"]}));
    for answer in [closed.clone(), closed, Answer::status(204)] {
        server.push(answer);
    }
    let sandbox = handle(&server).await;
    let policy = EgressPolicy::allow(["example.test"]).unwrap();
    sandbox.require_network().unwrap().set_policy(policy).await.unwrap();
    let update = server.requests().pop().unwrap();
    assert_eq!((update.method.as_str(), update.path()), ("PUT", "/sandboxes/i1/network"));
    assert_eq!(update.json::<Value>(), json!({"allowOut": ["example.test"], "denyOut": ["0.0.0.0/0"]}));
}

/// Nobody is told that a policy is in force which may not be.
#[tokio::test]
async fn an_update_whose_answer_was_lost_is_looked_at() {
    let before = || with(&json!({"denyOut": ["0.0.0.0/0"]}));
    let wanted = || with(&json!({"allowOut": ["example.test"], "denyOut": ["0.0.0.0/0"]}));
    let other = || with(&json!({"allowOut": ["other.test"], "denyOut": ["0.0.0.0/0"]}));
    for (after, result) in [
        (wanted(), None),
        (before(), Some(Retry::Safe)),
        (other(), Some(Retry::OutcomeUnknown)),
        (refused(500, "no"), Some(Retry::OutcomeUnknown)),
    ] {
        let server = Scripted::start().await;
        for answer in [before(), before(), refused(500, "no"), after] {
            server.push(answer);
        }
        let sandbox = handle(&server).await;
        let policy = EgressPolicy::allow(["example.test"]).unwrap();
        let set = sandbox.require_network().unwrap().set_policy(policy).await;
        assert_eq!(set.err().map(|error| error.retry()), result);
    }
}

#[tokio::test]
async fn a_refused_update_is_an_error() {
    for (answer, look, kind) in [
        (refused(400, "invalid"), None, ErrorKind::InvalidInput),
        (absent(), Some(absent()), ErrorKind::NotFound),
    ] {
        let server = Scripted::start().await;
        let open = with(&json!({}));
        for answer in [open.clone(), open, answer].into_iter().chain(look) {
            server.push(answer);
        }
        let sandbox = handle(&server).await;
        let error = sandbox.require_network().unwrap().set_policy(EgressPolicy::DenyAll).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
}

#[tokio::test]
async fn a_check_without_a_sandbox_is_inconclusive_and_says_what_to_do() {
    let server = Scripted::answering(|_| refused(401, "who")).await;
    let verdict = provider(&server).verify(VerifyOptions::default()).await.unwrap();
    assert_eq!(verdict.state, VerdictState::Inconclusive);
    assert!(verdict.remediation.is_some() && verdict.legs.is_empty());
}

/// The guests don't answer, so nothing is seen; and what was made for the check is gone all the same, also where that fails.
#[tokio::test]
async fn a_check_ends_what_it_made_and_its_failure_is_no_verdict() {
    for ended in [204, 500] {
        let server = Scripted::answering(move |request| match request.method.as_str() {
            "POST" if request.path() == "/v2/sandboxes" => {
                let body: Value = request.json();
                let is_open = body["allow_internet_access"] == json!(true);
                Answer::json(201, &made(if is_open { "iopen" } else { "iclosed" }))
            }
            "DELETE" if ended == 204 => Answer::status(204),
            _ => refused(500, "no"),
        })
        .await;
        let verdict = provider(&server).verify(VerifyOptions::default()).await.unwrap();
        assert_eq!(verdict.state, VerdictState::Inconclusive, "{verdict:?}");
        assert_eq!(server.count("DELETE", "/sandboxes/iclosed"), 1);
        assert_eq!(server.count("DELETE", "/sandboxes/iopen"), 1);
        let bodies: Vec<Value> = server
            .requests()
            .iter()
            .filter(|r| r.path() == "/v2/sandboxes")
            .map(sandbar_http::testing::Recorded::json)
            .collect();
        // The real way of making one, under the policy that sandboxes have here.
        assert!(bodies.iter().any(|body| body["network"] == json!({"denyOut": ["0.0.0.0/0"]})));
        assert!(
            bodies
                .iter()
                .all(|body| body["metadata"]["projectId"].as_str().unwrap().starts_with("egress-probe-"))
        );
    }
}
