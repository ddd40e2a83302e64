//! The control plane for sandboxes, as SDKs ask it. Over the reference backend where no process is needed.

#[path = "../common/mod.rs"]
mod common;

mod creating;
mod lifecycle;
mod limits;
mod listing;
mod local;
mod observing;
mod tenants;

use common::{Reply, Rig};
use http::{Method, StatusCode};
use serde_json::{Value, json};

/// The error's message; its body has the shape that SDKs look for.
fn message(reply: &Reply, status: u16) -> String {
    assert_eq!(reply.status.as_u16(), status, "{}", reply.text());
    let body = reply.json();
    assert_eq!(body["code"], status, "{body}");
    body["message"].as_str().expect("a message").to_owned()
}

async fn get(rig: &Rig, path: &str) -> Reply {
    rig.control(Method::GET, path, Value::Null).await
}

async fn post(rig: &Rig, path: &str, body: Value) -> Reply {
    rig.control(Method::POST, path, body).await
}

async fn detail(rig: &Rig, id: &str) -> Value {
    let reply = get(rig, &format!("/sandboxes/{id}")).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    reply.json()
}

async fn kill(rig: &Rig, id: &str) -> Reply {
    rig.control(Method::DELETE, &format!("/sandboxes/{id}"), Value::Null).await
}

/// Makes the smallest sandbox and answers its id.
async fn made(rig: &Rig) -> String {
    rig.create(json!({"templateID": "base"})).await.id
}
