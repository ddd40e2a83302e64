use std::fmt;

use hmac::{Hmac, Mac};
use sandbar_core::SandboxId;
use sha2::Sha256;

/// Length of the secret, in bytes: that of the hash it keys.
pub(crate) const SECRET_BYTES: usize = 32;

/// Derives every token from one secret, so that none is stored and each stays the same as long as what it opens exists.
#[derive(Clone)]
pub(crate) struct Seal([u8; SECRET_BYTES]);

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal")
    }
}

impl Seal {
    pub(crate) fn new(secret: [u8; SECRET_BYTES]) -> Self {
        Self(secret)
    }

    /// The token of a sandbox' guest API (`envdAccessToken`).
    pub(crate) fn guest_token(&self, id: &SandboxId) -> String {
        self.token("guest", &[id.as_str()])
    }

    /// The token that opens ports of a sandbox that are not public (`trafficAccessToken`).
    pub(crate) fn traffic_token(&self, id: &SandboxId) -> String {
        self.token("traffic", &[id.as_str()])
    }

    /// The token of a purpose and of what it is for: hexadecimal.
    pub(crate) fn token(&self, purpose: &str, parts: &[&str]) -> String {
        let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(&self.0).expect("a key of any length will do");
        for part in std::iter::once(&purpose).chain(parts) {
            // With lengths no two lists of parts are one text.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        hex(&mac.finalize().into_bytes())
    }
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_of_its_purpose_and_of_what_it_is_for() {
        let seal = Seal::new([7; SECRET_BYTES]);
        let id = SandboxId::new("s1").unwrap();
        assert_eq!(seal.guest_token(&id), seal.guest_token(&id));
        assert_ne!(seal.guest_token(&id), seal.traffic_token(&id));
        assert_ne!(seal.token("a", &["bc", "d"]), seal.token("a", &["b", "cd"]));
        assert_ne!(Seal::new([8; SECRET_BYTES]).guest_token(&id), seal.guest_token(&id));
        assert!(!format!("{seal:?}").contains('7'));
    }
}
