use bytes::{Bytes, BytesMut};

use crate::value::EscapeChar;

/// Most bytes that hands type between two reads. More at once is a paste, in which nothing is a key of ours.
const TYPED: usize = 3;
const SUSPEND: u8 = 0x1a;

/// Finds our own keys in what is typed: the escape character at the beginning of a line, and one more.
#[derive(Debug)]
pub(crate) struct Keys {
    escape: EscapeChar,
    at_line_start: bool,
    /// The escape character was typed and is held back until the next key tells what it was for.
    escaped: bool,
}

/// What our own keys ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// Leave the command alone.
    Detach,
    /// Stop this process, as a shell's suspend key does.
    Suspend,
    /// Say which keys there are.
    Help,
}

impl Keys {
    pub(crate) fn new(escape: EscapeChar) -> Self {
        Self { escape, at_line_start: true, escaped: false }
    }

    /// Takes what was read: what goes to the command, and what is asked of us. After a [`Key::Detach`] the rest does not count.
    pub(crate) fn take(&mut self, typed: Bytes) -> (Bytes, Option<Key>) {
        let Some(escape) = self.escape.byte() else { return (typed, None) };
        let is_pasted = typed.len() > TYPED;
        let plain = !self.escaped && (is_pasted || !typed.contains(&escape));
        if plain {
            self.at_line_start = typed.last().map_or(self.at_line_start, |byte| ends_line(*byte));
            return (typed, None);
        }
        let mut passed = BytesMut::with_capacity(typed.len() + 1);
        let mut key = None;
        for byte in typed {
            if std::mem::take(&mut self.escaped) {
                let asked = match byte {
                    b'.' => Some(Key::Detach),
                    b'?' => Some(Key::Help),
                    SUSPEND => Some(Key::Suspend),
                    _ => None,
                };
                if asked.is_some() && !is_pasted {
                    key = asked;
                    self.at_line_start = true;
                    continue;
                }
                passed.extend_from_slice(&[escape]);
                if byte == escape {
                    self.at_line_start = false;
                    continue;
                }
            } else if byte == escape && self.at_line_start && !is_pasted {
                self.escaped = true;
                continue;
            }
            passed.extend_from_slice(&[byte]);
            self.at_line_start = ends_line(byte);
        }
        (passed.freeze(), key)
    }

    /// The keys, for a person who asks, as a raw terminal wants them.
    pub(crate) fn help(&self) -> String {
        let escape = self.escape;
        format!(
            "\r\nsandbar: keys, at the beginning of a line:\r\n  {escape}.   detach\r\n  {escape}^Z  suspend sandbar\r\n  \
             {escape}{escape}   send {escape}\r\n  {escape}?   this\r\n"
        )
    }
}

fn ends_line(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(escape: &str) -> Keys {
        Keys::new(escape.parse().unwrap())
    }

    /// All that passed, and the keys of ours, of what was typed read by read.
    fn typed(keys: &mut Keys, reads: &[&str]) -> (String, Vec<Key>) {
        let (mut passed, mut asked) = (Vec::new(), Vec::new());
        for read in reads {
            let (bytes, key) = keys.take(Bytes::copy_from_slice(read.as_bytes()));
            passed.extend_from_slice(&bytes);
            asked.extend(key);
        }
        (String::from_utf8(passed).unwrap(), asked)
    }

    #[test]
    fn the_escape_counts_at_the_beginning_of_a_line() {
        assert_eq!(typed(&mut keys("~"), &["~", "."]), (String::new(), vec![Key::Detach]));
        assert_eq!(typed(&mut keys("~"), &["l", "s", "\r", "~", "."]), ("ls\r".into(), vec![Key::Detach]));
        assert_eq!(typed(&mut keys("~"), &["\r~."]), ("\r".into(), vec![Key::Detach]));
        assert_eq!(typed(&mut keys("~"), &["a", "~", "."]), ("a~.".into(), vec![]));
        assert_eq!(
            typed(&mut keys("~"), &["~", "?", "~", "\x1a"]),
            (String::new(), vec![Key::Help, Key::Suspend])
        );
    }

    #[test]
    fn what_is_no_key_of_ours_passes_whole() {
        assert_eq!(typed(&mut keys("~"), &["~", "/", "x"]), ("~/x".into(), vec![]));
        assert_eq!(typed(&mut keys("~"), &["~", "~", "."]), ("~.".into(), vec![]));
        assert_eq!(typed(&mut keys("~"), &["~", "\r", "~", "."]), ("~\r".into(), vec![Key::Detach]));
        assert_eq!(typed(&mut keys("~"), &["~", "ls -l\r"]), ("~ls -l\r".into(), vec![]));
    }

    #[test]
    fn a_paste_holds_no_key_of_ours() {
        assert_eq!(typed(&mut keys("~"), &["one\r~.\rtwo"]), ("one\r~.\rtwo".into(), vec![]));
        assert_eq!(typed(&mut keys("~"), &["~", ".\r~.\r"]), ("~.\r~.\r".into(), vec![]));
    }

    #[test]
    fn another_character_and_none() {
        assert_eq!(
            typed(&mut keys("^]"), &["~", ".", "\r", "\x1d", "."]),
            ("~.\r".into(), vec![Key::Detach])
        );
        assert_eq!(typed(&mut keys("none"), &["~", "."]), ("~.".into(), vec![]));
    }
}
