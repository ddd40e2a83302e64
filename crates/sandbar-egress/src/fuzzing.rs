//! What the fuzz targets run (decision 0009): each function takes any bytes and panics where a promise does not hold.

use crate::dns;
use crate::peek;

/// The first bytes of a TLS client.
pub fn client_hello(data: &[u8]) {
    peek::fuzzing::client_hello(data);
}

/// The head of a request.
pub fn request_head(data: &[u8]) {
    peek::fuzzing::request_head(data);
}

/// A chunked body, after a byte that says how it is cut.
pub fn chunked_body(data: &[u8]) {
    peek::fuzzing::chunked_body(data);
}

/// A message to the resolver.
pub fn dns_message(data: &[u8]) {
    dns::fuzzing::dns_message(data);
}

#[cfg(test)]
mod tests {
    use sandbar_replay::{MUTATIONS, replay_with};

    use super::*;

    /// How many changed seeds are tried: `$SANDBAR_SOAK`, or as many as elsewhere.
    fn size() -> usize {
        std::env::var("SANDBAR_SOAK").ok().and_then(|size| size.parse().ok()).unwrap_or(MUTATIONS)
    }

    #[test]
    fn client_hellos_replay() {
        replay_with("client_hello", client_hello, size());
    }

    #[test]
    fn request_heads_replay() {
        replay_with("request_head", request_head, size());
    }

    #[test]
    fn chunked_bodies_replay() {
        replay_with("chunked_body", chunked_body, size());
    }

    #[test]
    fn dns_messages_replay() {
        replay_with("dns_message", dns_message, size());
    }
}
