use sandbar_core::{ErrorKind, ProviderExt, SandboxId, SandboxProvider, State};
use sandbar_http::testing::{Answer, Scripted};
use serde_json::json;

use crate::script::{absent, asked, detail, provider, refused};

fn id(text: &str) -> SandboxId {
    SandboxId::new(text).unwrap()
}

#[tokio::test]
async fn looking_reads_the_record_and_connects_to_nothing() {
    let server = Scripted::answering(|_| Answer::json(200, &detail("i1", json!({"state": "paused"})))).await;
    let provider = provider(&server);
    assert_eq!(provider.describe(&id("i1")).await.unwrap().unwrap().state, State::Sleeping);
    let handle = provider.get(&id("i1")).await.unwrap().unwrap();
    assert_eq!(handle.record().await.unwrap().state, State::Sleeping);
    assert_eq!(asked(&server), ["GET /sandboxes/i1"; 3]);
}

#[tokio::test]
async fn only_the_api_s_own_404_is_absence() {
    let server = Scripted::answering(|_| absent()).await;
    let provider = provider(&server);
    assert!(provider.get(&id("i1")).await.unwrap().is_none());
    assert!(provider.describe(&id("i1")).await.unwrap().is_none());
    assert!(!provider.destroy(&id("i1")).await.unwrap());
    for answer in [
        Answer::status(404),
        Answer::status(404).with_body("404 page not found"),
        Answer::json(404, &json!({"code": "not_found", "message": "no"})),
        Answer::json(404, &json!({"code": 502, "message": "The sandbox was not found"})),
    ] {
        let server = Scripted::answering(move |_| answer.clone()).await;
        let provider = crate::script::provider(&server);
        for error in [
            provider.get(&id("i1")).await.map(drop).unwrap_err(),
            provider.describe(&id("i1")).await.map(drop).unwrap_err(),
            provider.destroy(&id("i1")).await.map(drop).unwrap_err(),
        ] {
            assert_ne!(error.kind(), ErrorKind::NotFound, "{error}");
            assert!(error.to_string().contains("unknown"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_look_that_failed_is_an_error_that_says_that_the_state_is_unknown() {
    for answer in [
        refused(500, "no"),
        refused(503, "busy"),
        refused(429, "later"),
        refused(401, "who"),
        Answer::json(200, &json!({"sandboxes": []})),
        Answer::json(200, &detail("i2", json!({}))),
        Answer::status(200).with_body("<html>"),
    ] {
        let server = Scripted::answering(move |_| answer.clone()).await;
        let error = provider(&server).describe(&id("i1")).await.unwrap_err();
        assert_ne!(error.kind(), ErrorKind::NotFound);
        assert!(
            error.to_string().contains("unknown") && std::error::Error::source(&error).is_some(),
            "{error}"
        );
    }
}

/// What follows a `-` is cut off by the API, so that such an id would name another sandbox.
#[tokio::test]
async fn ids_that_no_sandbox_has_are_not_asked_for() {
    let server = Scripted::start().await;
    let provider = provider(&server);
    for other in ["i1-client", "I1", "i_1"] {
        assert!(provider.get(&id(other)).await.unwrap().is_none());
        assert!(!provider.destroy(&id(other)).await.unwrap());
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn destroying_is_one_request_that_wakes_nothing_and_keeps_volumes() {
    let server = Scripted::answering(|_| Answer::status(204)).await;
    assert!(provider(&server).destroy(&id("i1")).await.unwrap());
    assert_eq!(asked(&server), ["DELETE /sandboxes/i1"]);
}
