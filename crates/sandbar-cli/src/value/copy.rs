use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use sandbar::GuestPath;

use crate::value::ValueError;
use crate::value::split::{join_colons, split_colons};

/// `SRC:DST` of `--copy`: a host path and where it goes in the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyIn {
    pub(crate) source: PathBuf,
    pub(crate) target: GuestPath,
    pub(crate) placement: Placement,
    pub(crate) existing: Existing,
    pub(crate) parents: Parents,
}

/// `SRC:DST` of `--out`: a path in the sandbox and where it goes on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyOut {
    pub(crate) source: GuestPath,
    pub(crate) target: PathBuf,
    pub(crate) placement: Placement,
    pub(crate) existing: Existing,
}

/// A copy from one sandbox to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyBetween {
    pub(crate) source: GuestPath,
    pub(crate) target: GuestPath,
    pub(crate) placement: Placement,
    pub(crate) existing: Existing,
    pub(crate) parents: Parents,
}

/// What becomes of folders that are missing above the destination in a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parents {
    /// They are made.
    Make,
    /// The copy is refused.
    Require,
}

/// What the destination means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// It ends with `/`, or is `.` or `..` in the end: the folder to copy into.
    Into,
    /// The folder to copy into if it is one, else the copy's own path.
    IntoOrAs,
}

/// What becomes of a folder that is in the copy's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    /// It stays, and the copy is refused. A file is replaced all the same.
    Keep,
    /// The copy takes its place, and it is removed.
    Replace,
}

const EXPECTED: &str = "expected SRC:DST";

impl CopyIn {
    /// How `clap` reads one: bytes, since paths need not be text.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().try_map(Self::parse)
    }

    pub(super) fn parse(text: OsString) -> Result<Self, ValueError> {
        let mut parts = split_colons(text);
        let target = parts.pop().filter(|_| !parts.is_empty()).ok_or_else(|| ValueError::new(EXPECTED))?;
        let source = join_colons(&parts);
        if source.is_empty() {
            return Err(ValueError::new(format!("SRC is empty: {EXPECTED}")));
        }
        let placement = placement(&target);
        Ok(Self {
            source: source.into(),
            target: GuestPath::new(target)?,
            placement,
            existing: Existing::Keep,
            parents: Parents::Make,
        })
    }
}

impl CopyOut {
    /// How `clap` reads one: bytes, since paths need not be text.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().try_map(Self::parse)
    }

    pub(super) fn parse(text: OsString) -> Result<Self, ValueError> {
        let parts = split_colons(text);
        let Some((source, rest)) = parts.split_first().filter(|(_, rest)| !rest.is_empty()) else {
            return Err(ValueError::new(EXPECTED));
        };
        let target = join_colons(rest);
        if target.is_empty() {
            return Err(ValueError::new(format!("DST is empty: {EXPECTED}")));
        }
        let source = GuestPath::new(source)?;
        if source.is_root() {
            return Err(ValueError::new("`/` can't be copied as a whole: name what you need of it"));
        }
        let placement = placement(target.as_encoded_bytes());
        Ok(Self { source, target: target.into(), placement, existing: Existing::Keep })
    }
}

pub(super) fn placement(target: &[u8]) -> Placement {
    match target.rsplit(|byte| *byte == b'/').next() {
        Some(b"" | b"." | b"..") => Placement::Into,
        _ => Placement::IntoOrAs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_splits_at_the_last_colon_and_out_at_the_first() {
        let copy = CopyIn::parse("a:b:/c".into()).unwrap();
        assert_eq!((copy.source, copy.target), ("a:b".into(), GuestPath::new("/c").unwrap()));
        let copy = CopyOut::parse("/c:a:b".into()).unwrap();
        assert_eq!((copy.source, copy.target), (GuestPath::new("/c").unwrap(), "a:b".into()));
        let copy = CopyOut::parse(r"/c\:d:e".into()).unwrap();
        assert_eq!(copy.source, GuestPath::new("/c:d").unwrap());
    }

    #[test]
    fn a_trailing_slash_or_dot_means_into() {
        assert_eq!(CopyIn::parse("a:/b/".into()).unwrap().placement, Placement::Into);
        assert_eq!(CopyIn::parse("a:/b".into()).unwrap().placement, Placement::IntoOrAs);
        for text in ["/b:a/", "/b:.", "/b:..", "/b:a/.", "/b:../..", "/b:/"] {
            assert_eq!(CopyOut::parse(text.into()).unwrap().placement, Placement::Into, "{text}");
        }
        assert_eq!(CopyOut::parse("/b:...".into()).unwrap().placement, Placement::IntoOrAs);
    }

    #[test]
    fn the_rest_is_refused_with_the_reason() {
        for (text, part) in [
            ("", "expected SRC:DST"),
            ("a", "expected SRC:DST"),
            (":/b", "SRC is empty"),
            ("a:b", "absolute"),
            ("a:/../b", "climbs"),
        ] {
            let error = CopyIn::parse(text.into()).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        for (text, part) in [
            ("/a", "expected SRC:DST"),
            ("/a:", "DST is empty"),
            ("a:b", "absolute"),
            ("/a/../b:c", "climbs"),
            ("/:c", "as a whole"),
        ] {
            let error = CopyOut::parse(text.into()).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
