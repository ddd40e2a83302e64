use std::fmt::Write as _;

use sandbar_core::{CreateOptions, EnvVars, ProviderExt, Query, SandboxId, SandboxProvider};
use sandbar_http::testing::{Answer, Scripted};
use serde_json::json;

use crate::script::{KEY, TOKEN, detail, made, provider, refused};

/// A value that the caller delivers itself.
const SECRET: &str = "sentinel0self0delivered";

/// All that an error shows.
fn shown(error: &sandbar_core::Error) -> String {
    let mut text = format!("{error} {error:?} {:?}", error.hint());
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let _ = write!(text, " {cause} {cause:?}");
        source = cause.source();
    }
    text
}

#[tokio::test]
async fn secrets_are_where_they_belong_and_nowhere_else() {
    // A server that says back what it was told, as proxies do in their error pages.
    let server = Scripted::answering(|request| {
        let all: Vec<_> =
            request.headers.values().map(|value| value.to_str().unwrap_or_default().to_owned()).collect();
        let echo = format!("you said {} {}", all.join(" "), String::from_utf8_lossy(&request.body));
        match (request.method.as_str(), request.path()) {
            ("POST", "/v2/sandboxes") => Answer::json(201, &made("i1")),
            ("GET", "/sandboxes/i1") => Answer::json(200, &detail("i1", json!({}))),
            ("GET", _) => refused(500, &echo),
            _ => Answer::status(500).with_body(echo).with_header("should-retry", "false"),
        }
    })
    .await;
    let provider = provider(&server);
    let env = EnvVars::new().with("K", SECRET).unwrap();
    let sandbox = provider.create(CreateOptions::new().with_self_delivered_env(env)).await.unwrap();
    let mut texts = vec![format!("{provider:?} {sandbox:?} {:?}", provider.config())];
    texts.push(format!("{:?}", sandbox.record().await.unwrap()));
    texts.push(shown(&provider.list_all(Query::new()).await.unwrap_err()));
    texts.push(shown(&provider.destroy(&SandboxId::new("i1").unwrap()).await.unwrap_err()));
    let access =
        provider.create_sandbox(CreateOptions::new()).await.unwrap().port_access(49_999).await.unwrap();
    texts.push(format!("{access:?}"));
    for text in &texts {
        for secret in [KEY, TOKEN, SECRET] {
            assert!(!text.contains(secret), "{text}");
        }
    }
    for request in server.requests() {
        assert!(!request.has(SECRET), "{request:?}");
        assert!(!request.has_in_body(KEY) && !request.uri.to_string().contains(KEY));
        // The guest's token is for the guest.
        assert!(!request.has(TOKEN));
    }
}
