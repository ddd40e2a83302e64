use futures::future::join_all;
use http::StatusCode;
use sandbar_server::Limits;
use serde_json::json;

use crate::common::Rig;
use crate::{kill, made, message, post};

async fn rig(sandboxes: u32) -> Rig {
    Rig::memory_with(move |config| config.limits = Limits { sandboxes, ..Limits::default() }).await
}

#[tokio::test]
async fn each_place_is_given_once_and_none_stays_empty() {
    let rig = rig(3).await;
    let body = || json!({"templateID": "base"});
    for _ in 0..5 {
        let replies = join_all((0..6).map(|_| post(&rig, "/v2/sandboxes", body()))).await;
        let (made, refused): (Vec<_>, Vec<_>) =
            replies.into_iter().partition(|reply| reply.status == StatusCode::CREATED);
        assert_eq!((made.len(), refused.len()), (3, 3));
        let text = message(&refused[0], 429);
        assert!(
            text.contains("you have reached the maximum number of concurrent E2B sandboxes (3)"),
            "{text}"
        );
        // Python would try it again by itself.
        assert_eq!(refused[0].headers["should-retry"], "false");
        for reply in made {
            kill(&rig, reply.json()["sandboxID"].as_str().unwrap()).await;
        }
    }
}

#[tokio::test]
async fn what_is_paused_has_no_place_and_needs_one_to_go_on() {
    let rig = rig(1).await;
    let first = made(&rig).await;
    message(&post(&rig, "/v2/sandboxes", json!({"templateID": "base"})).await, 429);
    post(&rig, &format!("/sandboxes/{first}/pause"), json!({})).await;
    let second = made(&rig).await;
    let connect = async || post(&rig, &format!("/v2/sandboxes/{first}/connect"), json!({})).await;
    message(&connect().await, 429);
    kill(&rig, &second).await;
    assert_eq!(connect().await.status, StatusCode::CREATED);
    // It has its place already.
    assert_eq!(connect().await.status, StatusCode::OK);
}
