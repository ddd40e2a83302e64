use sandbar_core::{
    CreateOptions, ErrorKind, Labels, Retry, SandboxProvider, TemplateId, VolumeMount, VolumeName,
};
use sandbar_e2b::{E2bConfig, E2bProvider};
use sandbar_http::testing::{Answer, Scripted};
use serde_json::{Value, json};

use crate::script::{KEY, asked, config, detail, made, provider, refused};

#[tokio::test]
async fn a_creation_is_one_request_with_a_key_for_repetitions() {
    let server = Scripted::start().await;
    server.push(Answer::json(201, &made("i1")));
    let labels = Labels::new().with("a", "b").unwrap();
    let sandbox = provider(&server).create(CreateOptions::new().with_labels(labels)).await.unwrap();
    assert_eq!(sandbox.id().as_str(), "i1");
    assert_eq!(asked(&server), ["POST /v2/sandboxes"]);
    let request = &server.requests()[0];
    assert_eq!(request.header("x-api-key"), Some(KEY));
    let key = request.header("idempotency-key").unwrap();
    let is_key = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    assert!(key.bytes().all(is_key) && key.len() <= 255, "{key}");
    let body: Value = request.json();
    assert_eq!(body["metadata"]["a"], "b");
    assert_eq!(body["metadata"]["sandbarCreation"], key);
    // Its address is known without another request, and so is its preview.
    assert!(sandbox.preview_url(5173).await.unwrap().ends_with("://5173-i1.e2b.app"));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn the_template_of_the_configuration_is_the_default() {
    let server = Scripted::answering(|_| Answer::json(201, &made("i1"))).await;
    let config = config(&server).with_template(TemplateId::new("mine").unwrap());
    let provider = E2bProvider::open(config).unwrap();
    provider.create(CreateOptions::new()).await.unwrap();
    provider.create(CreateOptions::new().with_template(TemplateId::new("other").unwrap())).await.unwrap();
    let templates: Vec<Value> =
        server.requests().iter().map(|r| r.json::<Value>()["templateID"].clone()).collect();
    assert_eq!(templates, ["mine", "other"]);
}

#[tokio::test]
async fn a_missing_key_is_told_by_the_first_call_and_nothing_is_sent() {
    let server = Scripted::start().await;
    let config = E2bConfig::new().with_api_url(server.url(""));
    let provider = E2bProvider::open(config).unwrap();
    let error = provider.create(CreateOptions::new()).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Unauthenticated, "create"));
    let hint = error.hint().unwrap();
    assert!(hint.contains("E2B_API_KEY") && hint.contains("with_api_key"), "{hint}");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn what_the_api_refuses_is_refused_in_its_words() {
    for (status, message, kind) in [
        (400, "Timeout cannot be greater than 1 hours", ErrorKind::InvalidInput),
        (401, "invalid key", ErrorKind::Unauthenticated),
        (403, "use of volumes is not enabled", ErrorKind::PermissionDenied),
        (404, "template 'x' not found", ErrorKind::NotFound),
        (
            429,
            "you have reached the maximum number of concurrent E2B sandboxes (20)",
            ErrorKind::LimitExceeded,
        ),
        (500, "sandbox_create_failed", ErrorKind::Unavailable),
    ] {
        let server = Scripted::start().await;
        server.push(refused(status, message));
        let error = provider(&server).create(CreateOptions::new()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{status}: {error}");
        assert!(error.to_string().contains(message), "{error}");
        // It said itself that there is none, so there is nothing to look for.
        assert_eq!(server.requests().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn what_is_not_asked_for_is_not_sent() {
    let server = Scripted::answering(|_| Answer::json(201, &made("i1"))).await;
    let provider = provider(&server);
    provider.create(CreateOptions::new()).await.unwrap();
    let mount = VolumeMount {
        volume: VolumeName::new("v").unwrap(),
        path: sandbar_core::GuestPath::new("/data").unwrap(),
    };
    provider.create(CreateOptions::new().with_volume(mount)).await.unwrap();
    let bodies: Vec<Value> = server.requests().iter().map(sandbar_http::testing::Recorded::json).collect();
    assert!(bodies[0].get("volumeMounts").is_none());
    assert_eq!(bodies[1]["volumeMounts"], json!([{"name": "v", "path": "/data"}]));
    assert_eq!(bodies[0]["network"], json!({"denyOut": ["0.0.0.0/0"]}));
}

/// The reply is lost on the way: the sandbox is found by its mark, and none is made twice.
#[tokio::test]
async fn a_creation_whose_answer_was_lost_is_adopted() {
    let server = Scripted::answering(|request| match request.path() {
        // A proxy gave up on it; the API did not say so.
        "/sandboxes/i7" => Answer::json(200, &detail("i7", json!({}))),
        _ if request.method == "GET" => Answer::json(200, &[detail("i7", json!({}))]),
        _ => Answer::status(504).with_header("should-retry", "false"),
    })
    .await;
    let sandbox = provider(&server).create(CreateOptions::new()).await.unwrap();
    assert_eq!(sandbox.id().as_str(), "i7");
    assert_eq!((server.count("POST", "*"), server.count("GET", "/v2/sandboxes")), (1, 1));
    let listing = asked(&server).pop().unwrap();
    assert!(listing.contains("metadata=sandbarCreation"), "{listing}");
}

#[tokio::test]
async fn a_creation_of_which_nothing_is_known_says_so() {
    for listing in [Answer::json(200, &json!([])), refused(500, "no")] {
        let server = Scripted::start().await;
        server.push(Answer::status(504).with_header("should-retry", "false"));
        server.push(listing);
        let error = provider(&server).create(CreateOptions::new()).await.unwrap_err();
        assert_eq!(error.retry(), Retry::OutcomeUnknown, "{error}");
        assert!(
            error.to_string().contains("unknown") && error.hint().unwrap().contains("sandbarCreation"),
            "{error}"
        );
    }
}

/// A server that does not know keys makes one for each repetition.
#[tokio::test]
async fn what_a_repetition_made_too_many_is_ended() {
    let server = Scripted::start().await;
    server.push(Answer::status(503));
    server.push(Answer::json(201, &made("i2")));
    server.push(Answer::json(200, &[detail("i1", json!({})), detail("i2", json!({}))]));
    server.push(Answer::status(204));
    let sandbox = provider(&server).create(CreateOptions::new()).await.unwrap();
    assert_eq!(sandbox.id().as_str(), "i2");
    assert_eq!(asked(&server).pop().unwrap(), "DELETE /sandboxes/i1");
}
