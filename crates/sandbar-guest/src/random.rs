use std::hash::{BuildHasher, Hasher, RandomState};

/// A word of 16 letters and digits that nobody else has: 64 bits of the standard library's own randomness. No secret.
pub(crate) fn word() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_differ() {
        let words: std::collections::BTreeSet<_> = (0..1000).map(|_| word()).collect();
        assert!(words.len() == 1000 && words.iter().all(|word| word.len() == 16));
    }
}
