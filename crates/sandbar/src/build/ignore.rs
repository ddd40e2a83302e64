use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::{PREPARE, io};
use crate::{Error, Result};

/// The file of a context that says what is left out: a pattern a line. One without `/` is of a name anywhere, another of a path from the context; `*` and `?` stand for
/// characters of a name, `**` for folders, and `/` at the end for folders alone. Lines that begin with `#` are comments.
pub const IGNORE_FILE: &str = ".sandbarignore";
/// Longest such file, in bytes: it is written by hand.
pub const MAX_IGNORE_FILE: u64 = 1 << 20;

#[derive(Clone, Debug, Default)]
pub(super) struct Ignore {
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug)]
struct Pattern {
    segments: Vec<Vec<u8>>,
    folders_alone: bool,
}

impl Ignore {
    pub(super) fn read(root: &Path) -> Result<Self> {
        use std::io::Read as _;
        let shown = format!("`{IGNORE_FILE}`");
        let file = match std::fs::File::open(root.join(IGNORE_FILE)) {
            Ok(file) => file,
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(cause) => return Err(io(&shown, cause)),
        };
        let mut text = String::new();
        file.take(MAX_IGNORE_FILE + 1).read_to_string(&mut text).map_err(|cause| io(&shown, cause))?;
        if text.len() as u64 > MAX_IGNORE_FILE {
            return Err(Error::invalid(PREPARE, format!("{shown} is longer than {MAX_IGNORE_FILE} bytes")));
        }
        Self::parse(&text)
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut patterns = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let complain =
                |why: &str| Error::invalid(PREPARE, format!("`{IGNORE_FILE}` line {}: {why}", index + 1));
            if line.starts_with('!') {
                return Err(complain("`!` is not known: nothing is taken back")
                    .with_hint("name more exactly what is left out"));
            }
            let (pattern, folders_alone) = match line.strip_suffix('/') {
                Some(pattern) => (pattern, true),
                None => (line, false),
            };
            let is_of_names = !pattern.contains('/');
            let mut segments: Vec<Vec<u8>> = Vec::new();
            if is_of_names {
                segments.push(b"**".to_vec());
            }
            for segment in pattern.split('/').filter(|segment| !segment.is_empty() && *segment != ".") {
                if segment == ".." {
                    return Err(complain("a pattern can't climb with `..`"));
                }
                if segment != "**" || segments.last().is_none_or(|last| last != b"**") {
                    segments.push(segment.as_bytes().to_vec());
                }
            }
            if segments.iter().all(|segment| segment == b"**") {
                return Err(complain("it leaves out everything"));
            }
            patterns.push(Pattern { segments, folders_alone });
        }
        Ok(Self { patterns })
    }

    /// Whether a path from the context is left out itself.
    pub(super) fn matches(&self, path: &Path, is_folder: bool) -> bool {
        let names: Vec<&[u8]> = path.components().map(|part| part.as_os_str().as_bytes()).collect();
        let fits =
            |pattern: &Pattern| (is_folder || !pattern.folders_alone) && path_fits(&pattern.segments, &names);
        self.patterns.iter().any(fits)
    }
}

fn path_fits(pattern: &[Vec<u8>], names: &[&[u8]]) -> bool {
    match pattern.split_first() {
        None => names.is_empty(),
        Some((first, rest)) if first == b"**" => {
            (0..=names.len()).any(|skipped| path_fits(rest, &names[skipped..]))
        }
        Some((first, rest)) => match names.split_first() {
            Some((name, further)) => name_fits(first, name) && path_fits(rest, further),
            None => false,
        },
    }
}

/// Goes back to the last `*` where the rest does not fit, so that it takes no longer than both lengths multiplied.
fn name_fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut read, mut back) = (0, 0, None);
    while read < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                back = Some((at + 1, read));
                at += 1;
            }
            Some(b'?') => (at, read) = (at + 1, read + 1),
            Some(byte) if *byte == name[read] => (at, read) = (at + 1, read + 1),
            _ => match back {
                Some((star, from)) => {
                    (at, read) = (star, from + 1);
                    back = Some((star, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}
