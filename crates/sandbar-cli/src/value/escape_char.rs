use std::fmt;
use std::str::FromStr;

use crate::value::ValueError;

/// The character that begins our own keys on a terminal: one of ASCII, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EscapeChar(Option<u8>);

impl EscapeChar {
    pub(crate) fn byte(self) -> Option<u8> {
        self.0
    }
}

impl Default for EscapeChar {
    fn default() -> Self {
        Self(Some(b'~'))
    }
}

impl FromStr for EscapeChar {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text.as_bytes() {
            b"none" => Ok(Self(None)),
            // Line ends are what it is looked for after.
            [byte] if byte.is_ascii_graphic() => Ok(Self(Some(*byte))),
            [b'^', letter @ (b'@'..=b'_' | b'a'..=b'z')]
                if !matches!(letter.to_ascii_uppercase(), b'J' | b'M') =>
            {
                Ok(Self(Some(letter.to_ascii_uppercase() & 0x1f)))
            }
            _ => Err(ValueError::new(
                "expected one character, such as `~`, a control character, such as `^]`, or `none`",
            )),
        }
    }
}

impl fmt::Display for EscapeChar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("none"),
            Some(byte) if byte < 0x20 => write!(f, "^{}", char::from(byte | 0x40)),
            Some(byte) => write!(f, "{}", char::from(byte)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_character_or_none() {
        for (text, byte) in
            [("~", Some(b'~')), ("^]", Some(0x1d)), ("^p", Some(0x10)), ("^", Some(b'^')), ("none", None)]
        {
            let parsed: EscapeChar = text.parse().unwrap();
            assert_eq!(parsed.byte(), byte, "{text}");
        }
        for bad in ["", "ab", "ä", " ", "\r", "^M", "^j", "^ä"] {
            assert!(bad.parse::<EscapeChar>().is_err(), "{bad:?}");
        }
        assert_eq!("^p".parse::<EscapeChar>().unwrap().to_string(), "^P");
    }
}
