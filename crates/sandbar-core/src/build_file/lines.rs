use super::instruction::complain;
use crate::{Error, Result};

/// Longest build file, in bytes: it is written by hand.
pub const MAX_BUILD_FILE: usize = 1 << 20;

/// A line with those that continue it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Logical {
    /// Where it begins, from 1.
    pub(super) line: usize,
    /// Without the backslashes and line ends between, and without blanks at both ends.
    pub(super) text: String,
}

/// Cuts a file into logical lines. Empty ones and comments are left out; inside of a continued line, too.
pub(super) fn logical(text: &str) -> Result<Vec<Logical>> {
    if text.len() > MAX_BUILD_FILE {
        let why = format!("the build file has {} bytes: expected at most {MAX_BUILD_FILE}", text.len());
        return Err(Error::invalid("parse build file", why));
    }
    let mut done = Vec::new();
    let mut open: Option<Logical> = None;
    for (index, raw) in text.strip_suffix('\n').unwrap_or(text).split('\n').enumerate() {
        let number = index + 1;
        let line = raw.strip_suffix('\r').unwrap_or(raw);
        if let Some(control) = line.chars().find(|c| c.is_control() && *c != '\t') {
            let why = format!("the character `{}` can't stand in a build file", control.escape_default());
            return Err(complain(number, why));
        }
        let trimmed = line.trim();
        if trimmed.starts_with('#') {
            continue;
        }
        let (text, continues) = match trimmed.strip_suffix('\\') {
            Some(text) => (text, true),
            None => (trimmed, false),
        };
        if trimmed.is_empty() {
            if let Some(open) = open {
                return Err(complain(number, "an empty line ends what the line before continues").with_hint(
                    format!("leave out the empty line, or the `\\` at the end of line {}", open.line),
                ));
            }
            continue;
        }
        let logical = match open.take() {
            Some(mut logical) => {
                logical.text.push_str(text);
                logical
            }
            None => Logical { line: number, text: text.to_owned() },
        };
        if continues {
            open = Some(logical);
        } else {
            done.push(logical);
        }
    }
    match open {
        Some(open) => Err(complain(open.line, "the last line ends with `\\`, and nothing follows")),
        None => Ok(done),
    }
}
