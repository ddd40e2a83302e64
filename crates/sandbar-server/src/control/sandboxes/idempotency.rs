use http::{HeaderMap, StatusCode};
use sandbar_wire::e2b::NewSandbox;
use sha2::{Digest as _, Sha256};

use super::plan::Generation;
use crate::error::{ApiError, ApiResult};

/// Header that tells a request that is tried again from a new one.
const HEADER: &str = "idempotency-key";

/// Longest key, in bytes: what E2B's SDK sends at most.
const MAX_KEY: usize = 255;

/// A key, and the hash of what was asked for with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) key: String,
    pub(super) asked: [u8; 32],
}

impl Attempt {
    /// Of a request that has a key.
    pub(super) fn of(
        headers: &HeaderMap,
        asked: &NewSandbox,
        generation: Generation,
    ) -> ApiResult<Option<Self>> {
        let Some(value) = headers.get(HEADER) else { return Ok(None) };
        let is_valid = |key: &&str| {
            (1..=MAX_KEY).contains(&key.len())
                && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        };
        let key = value.to_str().ok().filter(is_valid).ok_or_else(|| {
            ApiError::bad_request(format!(
                "Idempotency-Key is not valid: expected 1 to {MAX_KEY} of a-z, 0-9 and -"
            ))
        })?;
        // Written anew, so that two ways to write the same are the same.
        let text = serde_json::to_vec(asked).map_err(|_| ApiError::bad_request("the body can't be kept"))?;
        let mut hash = Sha256::new();
        hash.update([match generation {
            Generation::First => 1,
            Generation::Second => 2,
        }]);
        hash.update(text);
        Ok(Some(Self { key: key.to_owned(), asked: hash.finalize().into() }))
    }

    /// Another request with the same key.
    pub(super) fn other_body() -> ApiError {
        ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "this Idempotency-Key was used with another body: use a new key for a new sandbox",
        )
    }

    /// The same request, whose sandbox has ended.
    pub(super) fn ended() -> ApiError {
        ApiError::conflict("the sandbox that was made with this Idempotency-Key has ended: use a new key")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(key: &str, body: &str) -> ApiResult<Option<Attempt>> {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, key.parse().unwrap());
        Attempt::of(&headers, &serde_json::from_str(body).unwrap(), Generation::Second)
    }

    #[test]
    fn the_same_said_otherwise_is_the_same() {
        let one = attempt("abc-1", r#"{"templateID":"base","timeout":5}"#).unwrap();
        assert_eq!(one, attempt("abc-1", r#"{ "timeout" : 5, "templateID":"base", "mcp":null }"#).unwrap());
        assert_ne!(one, attempt("abc-1", r#"{"templateID":"base","timeout":6}"#).unwrap());
        for bad in ["", "A", "a b", "a_b", &"a".repeat(256)] {
            assert!(attempt(bad, r#"{"templateID":"base"}"#).is_err(), "{bad}");
        }
    }
}
