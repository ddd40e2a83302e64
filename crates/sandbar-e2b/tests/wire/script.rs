use sandbar_e2b::{E2bConfig, E2bProvider};
use sandbar_http::testing::{Answer, Recorded, Scripted};
use serde_json::{Value, json};

/// The key that must not turn up anywhere but in its header.
pub(crate) const KEY: &str = "e2b_sentinel0key";

/// The token that must not turn up anywhere but in its header.
pub(crate) const TOKEN: &str = "sentinel0guest0token";

pub(crate) fn provider(server: &Scripted) -> E2bProvider {
    E2bProvider::open(config(server)).expect("it opens")
}

pub(crate) fn config(server: &Scripted) -> E2bConfig {
    E2bConfig::new().with_api_key(KEY).with_api_url(server.url("")).with_sandbox_url(server.url(""))
}

/// A record as the API says it, with changes.
pub(crate) fn detail(id: &str, change: Value) -> Value {
    let mut detail = json!({
        "templateID": "t1", "sandboxID": id, "clientID": "c", "startedAt": "2026-01-01T00:00:00Z",
        "endAt": "2036-01-01T00:00:00Z", "cpuCount": 2, "memoryMB": 512, "diskSizeMB": 1024, "state": "running",
        "envdVersion": "0.6.13", "metadata": {}, "envdAccessToken": TOKEN, "alias": "base",
    });
    let Value::Object(change) = change else { panic!("changes are an object") };
    for (key, value) in change {
        detail[key] = value;
    }
    detail
}

/// What a creation answers.
pub(crate) fn made(id: &str) -> Value {
    json!({"templateID": "t1", "sandboxID": id, "clientID": "c", "envdVersion": "0.6.13", "envdAccessToken": TOKEN, "domain": null})
}

pub(crate) fn absent() -> Answer {
    refused(404, "Sandbox \"x\" doesn't exist or you don't have access to it")
}

pub(crate) fn refused(status: u16, message: &str) -> Answer {
    // Nothing is tried again: these tests are about what is made of an answer.
    Answer::json(status, &json!({"code": status, "message": message})).with_header("should-retry", "false")
}

/// What was asked, as `METHOD path?query`.
pub(crate) fn asked(server: &Scripted) -> Vec<String> {
    server.requests().iter().map(|request: &Recorded| format!("{} {}", request.method, request.uri)).collect()
}
