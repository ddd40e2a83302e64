use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Longest name in bytes, as text without a trailing dot (RFC 1035, section 3.1: 255 octets on the wire).
const MAX_NAME: usize = 253;
/// Longest label in bytes (RFC 1035, section 2.3.4).
const MAX_LABEL: usize = 63;
/// Longest text that is looked at at all: each character of a name takes at most four bytes of UTF-8 before it is mapped.
const MAX_TEXT: usize = 4 * (MAX_NAME + 1);

/// The name of a host: lower-case ASCII labels, without a trailing dot.
///
/// This is the only parser of host names, and two names are the same exactly if two values are equal. A name in another script is mapped to
/// its A-labels (IDNA, UTS 46). An IP address in any notation is none: also decimal, octal, hexadecimal and shortened forms, which some resolvers take.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hostname(Box<str>);

impl Hostname {
    /// Reads a name. One trailing dot is dropped.
    pub fn parse(text: &str) -> Result<Self> {
        read(text).map(|name| Self(name.into_boxed_str())).map_err(|why| {
            Error::invalid("parse host name", format!("`{}` is not a host name: {why}", shown(text)))
        })
    }

    /// Reads a name from bytes that need not be text.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::parse(text),
            Err(_) => Err(Error::invalid(
                "parse host name",
                format!("`{}` is not a host name: it is not text", shown(&String::from_utf8_lossy(bytes))),
            )),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its labels, the topmost last.
    pub fn labels(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('.')
    }

    /// Whether it lies below `suffix`: at least one label more, and the rest the same.
    pub fn is_below(&self, suffix: &Self) -> bool {
        self.0.strip_suffix(&*suffix.0).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
    }

    /// Whether it means the machine itself wherever it is asked for (RFC 6761, section 6.3).
    pub fn is_local(&self) -> bool {
        self.labels().next_back() == Some("localhost")
    }
}

/// Why a text is no name; else the name.
fn read(text: &str) -> std::result::Result<String, String> {
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    if text.len() > MAX_TEXT {
        return Err(too_long());
    }
    if let Some(bad) = text.chars().find(|c| c.is_control() || c.is_whitespace()) {
        return Err(match bad {
            ' ' => "it holds a space".to_owned(),
            bad => format!("it holds `{}`", bad.escape_unicode()),
        });
    }
    let mapped = if text.is_ascii() { text.to_ascii_lowercase() } else { text.to_owned() };
    let mapped = if needs_mapping(&mapped) { map(&mapped)? } else { mapped };
    let name = mapped.strip_suffix('.').unwrap_or(&mapped);
    if name.len() > MAX_NAME {
        return Err(too_long());
    }
    for label in name.split('.') {
        check_label(label)?;
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    if is_number(last) {
        return Err(
            "its last label is a number, so it is an address; use a CIDR rule for addresses".to_owned()
        );
    }
    Ok(name.to_owned())
}

/// Whether IDNA has a say in it: other scripts, and labels that claim to be mapped already.
fn needs_mapping(text: &str) -> bool {
    !text.is_ascii() || text.split('.').any(|label| label.starts_with("xn--"))
}

fn map(text: &str) -> std::result::Result<String, String> {
    use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};
    let mapped = Uts46::new().to_ascii(
        text.as_bytes(),
        AsciiDenyList::STD3,
        Hyphens::Check,
        DnsLength::VerifyAllowRootDot,
    );
    mapped
        .map(|name| name.to_ascii_lowercase())
        .map_err(|_| "it is no internationalised name (IDNA, UTS 46)".to_owned())
}

fn check_label(label: &str) -> std::result::Result<(), String> {
    if label.is_empty() {
        return Err("a label is empty".to_owned());
    }
    if label.len() > MAX_LABEL {
        return Err(format!("a label is longer than {MAX_LABEL} bytes"));
    }
    if let Some(bad) = label.chars().find(|c| !c.is_ascii_lowercase() && !c.is_ascii_digit() && *c != '-') {
        return Err(format!("it holds `{}`: expected letters, digits and `-`", bad.escape_default()));
    }
    if label.starts_with('-') || label.ends_with('-') {
        return Err("a label starts or ends with `-`".to_owned());
    }
    Ok(())
}

/// Whether resolvers may take a name with this last label for an address (WHATWG URL, "ends in a number").
fn is_number(label: &str) -> bool {
    let hex = label.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
    hex || label.bytes().all(|b| b.is_ascii_digit())
}

fn too_long() -> String {
    format!("it is longer than {MAX_NAME} bytes")
}

/// For messages: without what a terminal would act on, and not the whole of something endless.
pub(super) fn shown(text: &str) -> String {
    /// Characters of a refused text that a message repeats.
    const SHOWN: usize = 80;
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

impl FromStr for Hostname {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Hostname {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

impl From<Hostname> for String {
    fn from(name: Hostname) -> Self {
        name.0.into_string()
    }
}

impl fmt::Display for Hostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Hostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}
