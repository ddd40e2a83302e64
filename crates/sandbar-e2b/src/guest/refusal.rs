//! Who refused a request to an agent: the agent, or what stands before it.

use http::StatusCode;
use serde::Deserialize;

/// What a refusal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is the agent's own, for its client to read.
    Agents,
    /// The proxy knows no such sandbox that runs: it may be gone, or asleep.
    NoSandbox,
    /// The sandbox runs, and nothing listens where its agent should.
    NoAgent,
    /// The sandbox is between two states.
    InTransition,
    /// The token is not the sandbox'.
    Token,
    /// Somebody on the way could not pass it on.
    Gateway,
}

/// What the proxy says in JSON.
#[derive(Deserialize)]
struct Words {
    #[serde(default)]
    message: String,
}

/// Judges a refusal. Nothing here is absence: that is for the control plane to say.
pub(super) fn refusal(status: StatusCode, body: &[u8]) -> Refusal {
    let message = serde_json::from_slice::<Words>(body).map(|words| words.message).unwrap_or_default();
    match status {
        StatusCode::BAD_GATEWAY if message.contains("was not found") => Refusal::NoSandbox,
        StatusCode::BAD_GATEWAY if message.contains("port is not open") => Refusal::NoAgent,
        StatusCode::CONFLICT if message.contains("still transitioning") => Refusal::InTransition,
        // Of a user that does not exist the agent says that it is not authenticated, too.
        StatusCode::UNAUTHORIZED if !message.contains("username") => Refusal::Token,
        // A call that ran into the agent's own limit or that it can't do now has its code in words.
        StatusCode::BAD_GATEWAY => Refusal::Gateway,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT if !has_code(body) => Refusal::Gateway,
        _ => Refusal::Agents,
    }
}

/// Whether it is an error of the Connect protocol, whose code is a word.
fn has_code(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Coded {
        #[expect(dead_code, reason = "only its form matters")]
        code: String,
    }
    serde_json::from_slice::<Coded>(body).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn judge(status: u16, body: &str) -> Refusal {
        refusal(StatusCode::from_u16(status).unwrap(), body.as_bytes())
    }

    #[test]
    fn the_proxys_words_are_told_from_the_agents() {
        let gone = r#"{"sandboxId":"i1","message":"The sandbox was not found","code":502}"#;
        assert_eq!(judge(502, gone), Refusal::NoSandbox);
        let closed = r#"{"sandboxId":"i1","message":"The sandbox is running but port is not open","port":49983,"code":502}"#;
        assert_eq!(judge(502, closed), Refusal::NoAgent);
        assert_eq!(judge(502, "<html>Bad Gateway</html>"), Refusal::Gateway);
        assert_eq!(
            judge(409, r#"{"message":"The sandbox is still transitioning. Try again in a moment."}"#),
            Refusal::InTransition
        );
        assert_eq!(
            judge(401, r#"{"code":401,"message":"unauthorized access, please provide a token"}"#),
            Refusal::Token
        );
        assert_eq!(
            judge(401, r#"{"code":"unauthenticated","message":"invalid username: 'x'"}"#),
            Refusal::Agents
        );
        assert_eq!(judge(503, r#"{"code":"unavailable","message":"x"}"#), Refusal::Agents);
        assert_eq!(judge(503, "down"), Refusal::Gateway);
        assert_eq!(judge(404, r#"{"code":"not_found","message":"x"}"#), Refusal::Agents);
        assert_eq!(judge(409, r#"{"code":"already_exists","message":"x"}"#), Refusal::Agents);
    }

    proptest! {
        #[test]
        fn any_body_is_judged(status in 400_u16..600, body in prop::collection::vec(any::<u8>(), 0..200)) {
            let found = refusal(StatusCode::from_u16(status).unwrap(), &body);
            prop_assert!(status != 404 || found == Refusal::Agents);
        }
    }
}
