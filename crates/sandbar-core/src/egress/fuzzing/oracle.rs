//! The second reader of names: slow, character by character, and without a library. It knows the letters that are listed here; of a name with others it
//! says that it does not know.

use super::punycode;

/// What the second reader says of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Refused,
    Name(Vec<String>),
    Unsure,
}

/// What becomes of a character in a name.
enum Folded {
    To(char),
    /// It vanishes.
    Nothing,
    /// No name has it.
    Never,
    Unknown,
}

/// Letters of other scripts that are as they are in a name.
const LETTERS: &str = "аеорсхіοαüéßıñøж日本";
/// Letters that become others, in pairs.
const PAIRS: &[(char, char)] = &[
    ('А', 'а'),
    ('Е', 'е'),
    ('О', 'о'),
    ('Ü', 'ü'),
    ('É', 'é'),
    ('Ñ', 'ñ'),
    ('K', 'k'),
    ('ſ', 's'),
    ('ª', 'a'),
    ('ⓐ', 'a'),
    ('Ⓔ', 'e'),
    ('ℯ', 'e'),
    ('𝐚', 'a'),
    ('𝓮', 'e'),
    ('𝟏', '1'),
    ('¹', '1'),
    ('²', '2'),
    ('①', '1'),
    ('。', '.'),
    ('．', '.'),
    ('｡', '.'),
    ('－', '-'),
];
/// Characters that vanish.
const NOTHING: &str = "\u{ad}\u{200b}\u{2060}\u{feff}";
/// Characters that no name has.
const NEVER: &str = "\u{202e}\u{a0}\u{3000}\u{2028}\u{85}＠／％：＿";
/// First and last of the wide form of ASCII's printable characters, and how far they lie from them.
const WIDE: (char, char, u32) = ('！', '～', 0xfee0);

fn fold(c: char) -> Folded {
    if c == '.' || c == '-' || c.is_ascii_digit() || c.is_ascii_lowercase() {
        return Folded::To(c);
    }
    if let Some(at) = "ABCDEFGHIJKLMNOPQRSTUVWXYZ".chars().position(|upper| upper == c) {
        return "abcdefghijklmnopqrstuvwxyz".chars().nth(at).map_or(Folded::Never, Folded::To);
    }
    if c.is_ascii() || NEVER.contains(c) {
        return Folded::Never;
    }
    if LETTERS.contains(c) {
        return Folded::To(c);
    }
    if NOTHING.contains(c) {
        return Folded::Nothing;
    }
    if let Some((_, to)) = PAIRS.iter().find(|(from, _)| *from == c) {
        return Folded::To(*to);
    }
    if (WIDE.0..=WIDE.1).contains(&c) {
        return char::from_u32(u32::from(c) - WIDE.2).map_or(Folded::Never, fold);
    }
    Folded::Unknown
}

/// Whether a name's text is a name, and its labels as they are compared.
pub(super) fn read_name(text: &str) -> Reading {
    // More than four bytes for each character that a name and its last dot may have.
    if text.len() > 4 * 254 {
        return Reading::Refused;
    }
    let mut folded = String::new();
    let mut unknown = false;
    for c in text.chars() {
        match fold(c) {
            Folded::To(to) => folded.push(to),
            Folded::Nothing => {}
            Folded::Never if c.is_ascii_control() || c == ' ' => return Reading::Refused,
            // A mark after it could make another character of it.
            Folded::Never => folded.push('\0'),
            Folded::Unknown => unknown = true,
        }
    }
    if unknown {
        return Reading::Unsure;
    }
    let mapped = !text.is_ascii() || folded.split('.').any(|label| label.starts_with("xn--"));
    if !mapped {
        return ascii_labels(&folded).map_or(Reading::Refused, Reading::Name);
    }
    let mut labels = Vec::new();
    for label in folded.split('.') {
        match mapped_label(label) {
            Reading::Name(mut label) => labels.append(&mut label),
            other => return other,
        }
    }
    ascii_labels(&labels.join(".")).map_or(Reading::Refused, Reading::Name)
}

/// A label of a name of which IDNA has a say.
fn mapped_label(label: &str) -> Reading {
    let decoded: Vec<char> = match label.strip_prefix("xn--") {
        Some(coded) if label.is_ascii() => {
            let Some(decoded) = punycode::decode(coded) else { return Reading::Refused };
            if punycode::encode(&decoded) != coded || decoded.iter().all(char::is_ascii) {
                return Reading::Refused;
            }
            if decoded.iter().any(|c| !c.is_ascii() && !LETTERS.contains(*c)) {
                return Reading::Unsure;
            }
            decoded
        }
        Some(_) => return Reading::Refused,
        None => label.chars().collect(),
    };
    let dash = |at: usize| decoded.get(at) == Some(&'-');
    if dash(0) || decoded.last() == Some(&'-') || (dash(2) && dash(3)) {
        return Reading::Refused;
    }
    Reading::Name(vec![if decoded.iter().all(char::is_ascii) {
        label.to_owned()
    } else {
        format!("xn--{}", punycode::encode(&decoded))
    }])
}

/// The labels of a name in lower-case ASCII, by the rules of RFC 1035 and 1123; one empty label may be the last.
pub(super) fn ascii_labels(text: &str) -> Option<Vec<String>> {
    let mut labels = vec![String::new()];
    for c in text.chars() {
        if c == '.' {
            labels.push(String::new());
        } else if "abcdefghijklmnopqrstuvwxyz0123456789-".contains(c) {
            labels.last_mut()?.push(c);
        } else {
            return None;
        }
    }
    if labels.len() > 1 && labels.last()?.is_empty() {
        labels.pop();
    }
    let good =
        |label: &String| (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-');
    let length: usize = labels.iter().map(|label| label.len() + 1).sum();
    let last: Vec<char> = labels.last()?.chars().collect();
    let decimal = last.iter().all(|c| "0123456789".contains(*c));
    let hexadecimal = last.len() >= 2
        && last[0] == '0'
        && last[1] == 'x'
        && last[2..].iter().all(|c| "0123456789abcdef".contains(*c));
    (labels.iter().all(good) && length <= 254 && !decimal && !hexadecimal).then_some(labels)
}

/// Whether the names below it are meant, and the name.
pub(super) fn read_pattern(text: &str) -> (bool, Reading) {
    let characters: Vec<char> = text.chars().collect();
    match characters.as_slice() {
        ['*', '.', rest @ ..] => (true, read_name(&rest.iter().collect::<String>())),
        _ => (false, read_name(text)),
    }
}

/// Whether a pattern means a name: label by label, from the last.
pub(super) fn means(below: bool, suffix: &[String], name: &[String]) -> bool {
    let mut rest = name.to_vec();
    for label in suffix.iter().rev() {
        if rest.pop().as_ref() != Some(label) {
            return false;
        }
    }
    rest.is_empty() != below
}
