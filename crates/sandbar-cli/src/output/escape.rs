use std::borrow::Cow;
use std::fmt::Write;

use sandbar::observe::is_dangerous;

/// Makes text harmless to a terminal: control characters and those that are invisible or reorder text are written as escapes.
///
/// Everything that comes from a sandbox, a backend or a caller passes here before it is printed for a person.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(is_dangerous) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            character if is_dangerous(character) => {
                // Writing to a string can't fail.
                let _ = write!(escaped, "\\u{{{:x}}}", u32::from(character));
            }
            character => escaped.push(character),
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_text_is_not_copied() {
        assert!(matches!(escape("plain, naïve, 日本"), Cow::Borrowed(_)));
    }

    #[test]
    fn terminal_sequences_are_disarmed() {
        assert_eq!(escape("\x1b]0;owned\x07"), "\\u{1b}]0;owned\\u{7}");
        assert_eq!(escape("a\nb\r\tc"), "a\\nb\\r\\tc");
        assert_eq!(escape("\u{9b}31m"), "\\u{9b}31m");
        assert_eq!(escape("abc\u{202e}txt.exe"), "abc\\u{202e}txt.exe");
    }

    proptest! {
        #[test]
        fn nothing_dangerous_is_left(text in any::<String>()) {
            prop_assert!(!escape(&text).contains(is_dangerous));
        }
    }
}
