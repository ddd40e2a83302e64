//! What the fuzz targets run of egress (decision 0009), and the slow second reader that names are compared with.

mod oracle;
mod punycode;
mod rules;

pub use rules::egress_rule;

use oracle::{Reading, means, read_name, read_pattern};

use crate::{Hostname, NamePattern};

/// A name pattern, and on the lines after the first a name.
pub fn hostname(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let name = data.get(end + 1..).unwrap_or_default();
    if let Ok(pattern) = std::str::from_utf8(&data[..end]) {
        compare_names(pattern, name);
    }
}

/// What came of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    /// It is no name.
    Refused,
    /// It is a name, and the pattern does not mean it.
    Other,
    /// The pattern means it.
    Meant,
    /// The second reader can't tell; what has to hold of any name holds.
    Unsure,
}

/// Reads both in two ways. Panics if the second reader, or what has to hold of any name, says another thing.
pub(super) fn compare_names(pattern_text: &str, name: &[u8]) -> Compared {
    let read = Hostname::from_bytes(name).ok();
    let pattern = NamePattern::parse(pattern_text).ok();
    if let Some(read) = &read {
        holds(name, read);
    }
    let by_second = std::str::from_utf8(name).map_or(Reading::Refused, read_name);
    let expected = match &by_second {
        Reading::Unsure => return Compared::Unsure,
        Reading::Refused => None,
        Reading::Name(labels) => Some(labels.join(".")),
    };
    assert_eq!(read.as_ref().map(Hostname::as_str), expected.as_deref(), "`{}`", name.escape_ascii());
    let (below, suffix) = match read_pattern(pattern_text) {
        (_, Reading::Unsure) => return Compared::Unsure,
        (_, Reading::Refused) => {
            assert_eq!(pattern, None, "`{pattern_text}` is a pattern");
            return if read.is_some() { Compared::Other } else { Compared::Refused };
        }
        (below, Reading::Name(suffix)) => (below, suffix),
    };
    let pattern = pattern.unwrap_or_else(|| panic!("`{pattern_text}` is no pattern"));
    let (Some(read), Reading::Name(labels)) = (read, by_second) else { return Compared::Refused };
    let meant = means(below, &suffix, &labels);
    assert_eq!(pattern.matches(&read), meant, "{pattern} and {read}");
    if meant { Compared::Meant } else { Compared::Other }
}

/// What holds of any name, however it was written.
fn holds(text: &[u8], name: &Hostname) {
    /// Nothing with one of these is a name in any script.
    const NEVER: &[u8] = b"\0\t\n\r @/:%[]?#_\\*&;'\"";
    assert!(!text.iter().any(|byte| NEVER.contains(byte)), "{name} of `{}`", text.escape_ascii());
    assert!(name.as_str().parse::<std::net::IpAddr>().is_err());
    assert_eq!(Hostname::parse(name.as_str()).as_ref().ok(), Some(name));
    assert_eq!(
        oracle::ascii_labels(name.as_str()).map(|labels| labels.join(".")).as_deref(),
        Some(name.as_str())
    );
    for label in name.labels().filter_map(|label| label.strip_prefix("xn--")) {
        let decoded =
            punycode::decode(label).unwrap_or_else(|| panic!("`{label}` of {name} can't be decoded"));
        assert!(!decoded.iter().all(char::is_ascii), "{name} hides {decoded:?}");
        assert_eq!(punycode::encode(&decoded), label, "two forms of one label");
    }
}
