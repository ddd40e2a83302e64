use sandbar::SandboxName;

use crate::value::{ValueError, contract};

/// Characters of an id, its first one included.
const ID_LENGTH: usize = 20;
/// What an id of this machine's sandboxes starts with.
const ID_FIRST: u8 = b's';
/// What stands in no id, since people mix it up with digits and each other.
const NOT_IN_IDS: &[u8] = b"ilou";

/// How `clap` reads the name of a new sandbox. One that could be an id is refused: whoever types an id of a sandbox that is gone must never meet
/// another one.
pub(crate) fn sandbox_name(text: &str) -> Result<SandboxName, ValueError> {
    if is_shaped_like_an_id(text) {
        return Err(ValueError::new("it is shaped like an id, and would be taken for one: choose another"));
    }
    contract(text)
}

/// Whether a text is an id as the local backend makes them. Then it means that sandbox and no other.
pub(crate) fn is_shaped_like_an_id(text: &str) -> bool {
    let in_ids =
        |byte: u8| (byte.is_ascii_digit() || byte.is_ascii_lowercase()) && !NOT_IN_IDS.contains(&byte);
    text.len() == ID_LENGTH && text.as_bytes()[0] == ID_FIRST && text.bytes().all(in_ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_an_id_is_no_name() {
        assert!(sandbox_name("s0123456789abcdefghj").unwrap_err().to_string().contains("like an id"));
        for name in [
            "s0123456789abcdefgh",
            "s0123456789abcdefghjk",
            "supercalifragilistic",
            "x0123456789abcdefghj",
            "s",
        ] {
            assert_eq!(sandbox_name(name).unwrap().as_str(), name);
        }
        assert!(sandbox_name("").is_err() && sandbox_name("dëmo").is_err());
    }
}
