use std::fmt::Write as _;

use serde_json::Map;

use super::Event;
use crate::log::MAX_LINE;

/// The event as one line with its end. Characters that act on a terminal, or that reorder or hide text, are escaped, so that the file may be looked
/// at with any program.
pub(crate) fn to_line(event: &Event) -> serde_json::Result<Vec<u8>> {
    let mut line = disarmed(&serde_json::to_string(event)?);
    if line.len() >= MAX_LINE {
        let mut short = event.clone();
        short.detail =
            Map::from_iter([("cut".to_owned(), true.into()), ("bytes".to_owned(), line.len().into())]);
        line = disarmed(&serde_json::to_string(&short)?);
    }
    line.push('\n');
    Ok(line.into_bytes())
}

/// A value as JSON in one line that may be shown on any terminal: what acts on it, or reorders or hides text, is escaped.
pub fn to_safe_json(value: &impl serde::Serialize) -> serde_json::Result<String> {
    serde_json::to_string(value).map(|json| disarmed(&json))
}

/// In JSON such characters stand in strings only, so an escape is the same text.
fn disarmed(json: &str) -> String {
    if !json.contains(is_dangerous) {
        return json.to_owned();
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if is_dangerous(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string can't fail.
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(character);
        }
    }
    safe
}

/// Whether a character acts on a terminal, is invisible, or reorders text.
pub fn is_dangerous(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            // Soft hyphen; zero-width and direction marks; line and paragraph separators; embeddings, overrides, isolates and
            // invisible operators; byte order mark; interlinear annotation; tags.
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Actor, Role};

    fn event(text: &str) -> Event {
        Event::note("read", "memory", Actor::this_process(Role::Caller, None)).with_detail("path", text)
    }

    #[test]
    fn a_line_is_one_line_and_harmless() {
        let hostile = "/tmp/a\nb\x1b]0;x\x07\"\\\u{9b}31m\u{202e}\u{e0041}";
        let line = String::from_utf8(to_line(&event(hostile)).unwrap()).unwrap();
        assert!(!line.trim_end_matches('\n').contains(is_dangerous), "{line}");
        let back: Event = serde_json::from_str(&line).unwrap();
        assert_eq!(back.detail["path"], hostile);
    }

    #[test]
    fn what_is_too_long_after_all_loses_its_details() {
        let line = to_line(&event(&"\u{1}".repeat(MAX_LINE))).unwrap();
        assert!(line.len() <= MAX_LINE);
        let back: Event = serde_json::from_slice(&line).unwrap();
        assert_eq!(back.detail["cut"], true);
    }

    proptest! {
        #[test]
        fn any_text_comes_back_from_one_harmless_line(text in any::<String>()) {
            let line = String::from_utf8(to_line(&event(&text)).unwrap()).unwrap();
            prop_assert!(!line.trim_end_matches('\n').contains(is_dangerous));
            let back: Event = serde_json::from_str(&line).unwrap();
            prop_assert_eq!(back.detail["path"].as_str(), Some(text.as_str()));
        }
    }
}
