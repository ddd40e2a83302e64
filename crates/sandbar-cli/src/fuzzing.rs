//! What the fuzz targets run (decision 0009): each function takes any bytes and panics where a promise does not hold.

use std::fmt::Write;

use crate::output::escape;
use crate::{tar, transfer, value};

/// Archives: as they are, and with the checksums of their headers made right.
pub fn archive(data: &[u8]) {
    tar::fuzzing::archive(data);
}

/// A whole copy out of a sandbox: the first byte says what is in its place, the rest is the archive.
pub fn unpack(data: &[u8]) {
    transfer::fuzzing::unpack(data);
}

/// Values of options, and environment files.
pub fn values(data: &[u8]) {
    value::fuzzing::values(data);
}

/// Text on its way to a terminal.
pub fn terminal_text(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let escaped = escape(&text);
    assert!(!escaped.chars().any(char::is_control), "{escaped:?}");
    assert_eq!(escape(&escaped), escaped, "what is harmless stays as it is");
    let plain = text.bytes().all(|byte| (b' '..0x7f).contains(&byte));
    assert!(!plain || escaped == text);
    // Each character is there, as itself or as its escape.
    let mut rest = &*escaped;
    for character in text.chars() {
        let mut code = String::new();
        let _ = write!(code, "\\u{{{:x}}}", u32::from(character));
        let forms = [character.to_string(), code, character.escape_default().to_string()];
        let form = forms.iter().find(|form| rest.starts_with(form.as_str()));
        rest = &rest[form.expect("a character is shown").len()..];
    }
    assert!(rest.is_empty());
}

#[cfg(test)]
mod tests {
    sandbar_replay::replay_tests!(archive, values, terminal_text);

    #[test]
    fn unpack() {
        // Each makes and removes a tree.
        sandbar_replay::replay_with("unpack", super::unpack, sandbar_replay::MUTATIONS / 8);
    }
}
