use std::collections::BTreeSet;
use std::fmt::Write;

/// Modes that a program switches on and may leave on when it is killed (DEC private modes, as xterm has them): cursor keys, mouse reports, focus
/// reports, bracketed paste, the other screen. The other screen comes last, so that it is left last.
const LEFT_ON: &[u16] = &[1, 9, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004, 47, 1047, 1049];
/// Modes that are on by default and may be left off: line wrap, the cursor.
const LEFT_OFF: &[u16] = &[7, 25];
/// Longest parameters that are looked at; a longer sequence switches nothing that counts here.
const MAX_PARAMETERS: usize = 64;

/// Which modes of the terminal a command has changed. A program that is killed can't change them back.
#[derive(Debug, Default)]
pub(crate) struct Modes {
    state: Parse,
    parameters: Vec<u8>,
    changed: BTreeSet<u16>,
    keypad: bool,
    other_keys: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Parse {
    #[default]
    Text,
    Escape,
    Sequence,
}

impl Modes {
    /// Looks at output on its way to the terminal. A sequence may be spread over several calls.
    pub(crate) fn see(&mut self, mut output: &[u8]) {
        while !output.is_empty() {
            if self.state == Parse::Text {
                let Some(at) = output.iter().position(|byte| *byte == 0x1b) else { return };
                output = &output[at + 1..];
                self.state = Parse::Escape;
                continue;
            }
            let byte = output[0];
            output = &output[1..];
            self.state = self.step(byte);
        }
    }

    fn step(&mut self, byte: u8) -> Parse {
        match (self.state, byte) {
            (_, 0x1b) => Parse::Escape,
            (Parse::Escape, b'[') => {
                self.parameters.clear();
                Parse::Sequence
            }
            (Parse::Escape, b'c') => {
                *self = Self::default();
                Parse::Text
            }
            (Parse::Escape, b'=' | b'>') => {
                self.keypad = byte == b'=';
                Parse::Text
            }
            (Parse::Sequence, 0x20..=0x3f) if self.parameters.len() < MAX_PARAMETERS => {
                self.parameters.push(byte);
                Parse::Sequence
            }
            (Parse::Sequence, b'h' | b'l') => {
                self.switch(byte == b'h');
                Parse::Text
            }
            (Parse::Sequence, b'm') => {
                if self.parameters.starts_with(b">4") {
                    self.other_keys = self.parameters.starts_with(b">4;") && self.parameters != b">4;0";
                }
                Parse::Text
            }
            _ => Parse::Text,
        }
    }

    fn switch(&mut self, on: bool) {
        let Some(numbers) = self.parameters.strip_prefix(b"?") else { return };
        for number in numbers.split(|byte| *byte == b';') {
            let number: Option<u16> = std::str::from_utf8(number).ok().and_then(|text| text.parse().ok());
            let Some(number) = number else { continue };
            let is_changed = match number {
                _ if LEFT_ON.contains(&number) => on,
                _ if LEFT_OFF.contains(&number) => !on,
                _ => continue,
            };
            if is_changed {
                self.changed.insert(number);
            } else {
                self.changed.remove(&number);
            }
        }
    }

    /// What undoes all that is still changed; empty where nothing is.
    pub(crate) fn reset(&self) -> String {
        let mut text = String::new();
        for (modes, letter) in [(LEFT_OFF, 'h'), (LEFT_ON, 'l')] {
            for mode in modes.iter().filter(|mode| self.changed.contains(mode)) {
                // Writing to a string can't fail.
                let _ = write!(text, "\x1b[?{mode}{letter}");
            }
        }
        if self.keypad {
            text.push_str("\x1b>");
        }
        if self.other_keys {
            text.push_str("\x1b[>4m");
        }
        if !text.is_empty() {
            text.push_str("\x1b[0m");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn after(pieces: &[&[u8]]) -> String {
        let mut modes = Modes::default();
        for piece in pieces {
            modes.see(piece);
        }
        modes.reset()
    }

    #[test]
    fn what_was_changed_is_undone_and_nothing_else() {
        assert_eq!(after(&[b"plain \x1b[31mred\x1b[0m"]), "");
        assert_eq!(after(&[b"\x1b[?1049h\x1b[?25l..."]), "\x1b[?25h\x1b[?1049l\x1b[0m");
        assert_eq!(after(&[b"\x1b[?1049h\x1b[?25l...\x1b[?25h\x1b[?1049l"]), "");
        assert_eq!(after(&[b"\x1b[?1000;1006h\x1b="]), "\x1b[?1000l\x1b[?1006l\x1b>\x1b[0m");
        assert_eq!(after(&[b"\x1b[>4;2m"]), "\x1b[>4m\x1b[0m");
        assert_eq!(after(&[b"\x1b[>4;2m\x1b[>4m"]), "");
        assert_eq!(after(&[b"\x1b[?1049h\x1bc"]), "");
    }

    #[test]
    fn sequences_may_be_cut_and_may_be_nonsense() {
        assert_eq!(after(&[b"\x1b", b"[?20", b"04", b"h"]), "\x1b[?2004l\x1b[0m");
        assert_eq!(after(&[b"\x1b[\x1b[?25l"]), "\x1b[?25h\x1b[0m");
        assert_eq!(after(&[b"\x1b[?99999999999h\x1b[?h\x1b[25l"]), "");
        let long = [b"\x1b[?".as_slice(), &b"1;".repeat(100), b"25l"].concat();
        assert_eq!(after(&[&long]), "");
    }

    proptest! {
        #[test]
        fn where_it_is_cut_makes_no_difference(text in "(\x1b|\\[|\\?|;|1049|25|h|l|c|=|x)*", at in 0_usize..40) {
            let bytes = text.as_bytes();
            let (one, two) = bytes.split_at(at.min(bytes.len()));
            prop_assert_eq!(after(&[one, two]), after(&[bytes]));
        }
    }
}
