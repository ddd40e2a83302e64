use std::path::PathBuf;
use std::str::FromStr;

use sandbar::observe::{AuditMode, MAX_KEEP, MIN_MAX_BYTES};

use crate::value::{Size, ValueError};

/// The file of an audit record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AuditFile {
    /// Where it is if nobody says where.
    Default,
    Path(PathBuf),
}

/// `FILE[,required|best-effort][,size=SIZE][,keep=N]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuditArg {
    pub(crate) file: AuditFile,
    pub(crate) mode: AuditMode,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) keep: Option<u32>,
}

const EXPECTED: &str =
    "expected FILE or `default`, then `,required` or `,best-effort`, `,size=SIZE`, `,keep=N`";

impl FromStr for AuditFile {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "" => Err(ValueError::new("no file: expected a path or `default`")),
            "default" => Ok(Self::Default),
            path => Ok(Self::Path(path.into())),
        }
    }
}

impl FromStr for AuditArg {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let mut parts = text.split(',');
        let file = parts.next().unwrap_or_default().parse()?;
        let mut arg = Self { file, mode: AuditMode::default(), max_bytes: None, keep: None };
        for part in parts {
            match part.split_once('=') {
                None if part == "required" => arg.mode = AuditMode::Required,
                None if part == "best-effort" => arg.mode = AuditMode::BestEffort,
                Some(("size", size)) => {
                    let Size(bytes) = size.parse()?;
                    if bytes < MIN_MAX_BYTES {
                        let why = format!("a size below {MIN_MAX_BYTES} bytes, the longest line");
                        return Err(ValueError::new(why));
                    }
                    arg.max_bytes = Some(bytes);
                }
                Some(("keep", number)) => {
                    let number = number.parse().ok().filter(|number| (1..=MAX_KEEP).contains(number));
                    let why =
                        || ValueError::new(format!("`keep` is the number of older files: 1 to {MAX_KEEP}"));
                    arg.keep = Some(number.ok_or_else(why)?);
                }
                _ => {
                    let why = format!("unknown word `{}`: {EXPECTED}", part.escape_debug());
                    return Err(ValueError::new(why));
                }
            }
        }
        Ok(arg)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_file_alone_is_required_and_words_change_that() {
        let plain: AuditArg = "/a/b.jsonl".parse().unwrap();
        assert_eq!((plain.file, plain.mode), (AuditFile::Path("/a/b.jsonl".into()), AuditMode::Required));
        let full: AuditArg = "default,best-effort,size=1M,keep=3".parse().unwrap();
        let wanted = AuditArg {
            file: AuditFile::Default,
            mode: AuditMode::BestEffort,
            max_bytes: Some(1 << 20),
            keep: Some(3),
        };
        assert_eq!(full, wanted);
    }

    #[test]
    fn the_rest_is_refused_with_the_reason() {
        for (text, part) in [
            ("", "no file"),
            (",required", "no file"),
            ("a,often", "unknown word `often`"),
            ("a,size=1", "longest line"),
            ("a,size=x", "expected bytes"),
            ("a,keep=0", "1 to"),
            ("a,keep=1001", "1 to"),
            ("a,", "unknown word"),
        ] {
            let error = text.parse::<AuditArg>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_record_or_an_error(text in ".{0,60}") {
            let _ = text.parse::<AuditArg>();
        }
    }
}
