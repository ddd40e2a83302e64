use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use sandbar::{GuestPath, MountAccess};

use crate::value::ValueError;
use crate::value::split::{join_colons, split_colons};

/// `HOST:GUEST`, `HOST:GUEST:ro` or `HOST:GUEST:rw`. The host path may be relative to the current folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) source: PathBuf,
    pub(crate) target: GuestPath,
    pub(crate) access: MountAccess,
}

const EXPECTED: &str = "expected HOST:GUEST or HOST:GUEST:rw";

impl Mount {
    /// How `clap` reads one: bytes, since host paths need not be text.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().try_map(Self::parse)
    }

    pub(super) fn parse(text: OsString) -> Result<Self, ValueError> {
        let mut parts = split_colons(text);
        let access = match parts.last().map(Vec::as_slice) {
            Some(b"rw") => Some(MountAccess::ReadWrite),
            Some(b"ro") => Some(MountAccess::ReadOnly),
            _ => None,
        };
        if access.is_some() {
            parts.pop();
        }
        let target = parts.pop().filter(|_| !parts.is_empty()).ok_or_else(|| ValueError::new(EXPECTED))?;
        let source = join_colons(&parts);
        if source.is_empty() {
            return Err(ValueError::new(format!("the host path is empty: {EXPECTED}")));
        }
        Ok(Self {
            source: source.into(),
            target: GuestPath::new(target)?,
            access: access.unwrap_or(MountAccess::ReadOnly),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn parse(text: &str) -> Result<Mount, ValueError> {
        Mount::parse(text.into())
    }

    #[test]
    fn it_is_read_only_unless_asked() {
        assert_eq!(parse("/a:/b").unwrap().access, MountAccess::ReadOnly);
        assert_eq!(parse("/a:/b:ro").unwrap().access, MountAccess::ReadOnly);
        assert_eq!(parse("/a:/b:rw").unwrap().access, MountAccess::ReadWrite);
    }

    #[test]
    fn host_paths_may_hold_colons_and_bytes() {
        assert_eq!(parse("/a:b:/c").unwrap().source, PathBuf::from("/a:b"));
        assert_eq!(parse(r"/a:/b\:c").unwrap().target, GuestPath::new("/b:c").unwrap());
        let mount = Mount::parse(OsString::from_vec(b"/\xff:/x".to_vec())).unwrap();
        assert_eq!(mount.source.into_os_string().into_vec(), b"/\xff");
    }

    #[test]
    fn the_rest_is_refused_with_the_reason() {
        for (text, part) in [
            ("", "expected HOST:GUEST"),
            ("/a", "expected HOST:GUEST"),
            ("/a:rw", "expected HOST:GUEST"),
            (":/b", "host path is empty"),
            ("/a:b", "absolute"),
            ("/a:/b/../c", "climbs"),
            ("/a:/b:rx", "absolute"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
