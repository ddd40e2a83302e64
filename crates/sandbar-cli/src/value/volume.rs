use std::ffi::OsString;

use clap::builder::{OsStringValueParser, TypedValueParser};
use sandbar::{GuestPath, VolumeMount, VolumeName};

use crate::value::ValueError;
use crate::value::split::split_colons;

/// `NAME:/PATH`: a volume and where it appears. The path may hold colons, a volume's name can't.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeArg(pub(crate) VolumeMount);

const EXPECTED: &str = "expected NAME:/PATH, the name of a volume and where it appears inside";

impl VolumeArg {
    /// How `clap` reads one: bytes, since paths need not be text.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().try_map(Self::parse)
    }

    fn parse(text: OsString) -> Result<Self, ValueError> {
        let parts = split_colons(text);
        let (name, path) = parts.split_first().ok_or_else(|| ValueError::new(EXPECTED))?;
        if path.is_empty() {
            return Err(ValueError::new(EXPECTED));
        }
        if path.last().is_some_and(|last| matches!(last.as_slice(), b"rw" | b"ro")) && path.len() > 1 {
            return Err(ValueError::new(format!("a volume is always writable, without `:rw`: {EXPECTED}")));
        }
        let name = std::str::from_utf8(name).map_err(|_| ValueError::new(EXPECTED))?;
        if name.starts_with(['/', '.']) {
            return Err(ValueError::new(format!("a folder of this machine is a `--mount`: {EXPECTED}")));
        }
        Ok(Self(VolumeMount { volume: VolumeName::new(name)?, path: GuestPath::new(path.join(&b':'))? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_name_and_a_path() {
        let volume = VolumeArg::parse("data.1:/mnt/a:b".into()).unwrap().0;
        assert_eq!(volume.volume, VolumeName::new("data.1").unwrap());
        assert_eq!(volume.path, GuestPath::new("/mnt/a:b").unwrap());
        for (text, part) in [
            ("", "expected NAME:/PATH"),
            ("data", "expected NAME:/PATH"),
            ("/srv:/mnt", "`--mount`"),
            ("./x:/mnt", "`--mount`"),
            ("data:/mnt:rw", "always writable"),
            ("data:mnt", "absolute"),
            (":/mnt", "volume name"),
            ("a b:/mnt", "volume name"),
        ] {
            let error = VolumeArg::parse(text.into()).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
