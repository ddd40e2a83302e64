use sandbar_core::{Result, SandboxId};

use crate::error::io_error;

/// Characters of an id: what a DNS label, a file name and a cgroup's name all take, without the ones that people mix up (`i l o u`).
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Characters of an id after its first: 95 random bits, which nobody guesses.
const LENGTH: usize = 19;

/// A new id. Starts with a letter, so that no tool takes it for a number or an option.
pub(crate) fn new_id() -> Result<SandboxId> {
    let text = random_text(LENGTH).map_err(|cause| io_error("create", "random numbers", cause))?;
    SandboxId::new(format!("s{text}"))
}

/// `length` random characters of the alphabet.
pub(crate) fn random_text(length: usize) -> rustix::io::Result<String> {
    Ok(random_bytes(length)?.into_iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect())
}

/// `length` bytes from the kernel.
pub(crate) fn random_bytes(length: usize) -> rustix::io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_well_formed_and_differ() {
        let ids: std::collections::HashSet<_> = (0..1000).map(|_| new_id().unwrap()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.as_str().len() == LENGTH + 1 && id.as_str().starts_with('s')));
    }
}
