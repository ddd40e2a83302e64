use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use sandbar::GuestPath;

use crate::value::copy::placement;
use crate::value::{Placement, ValueError};

/// `ID:/PATH` or a path of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a sandbox.
    Guest { id: String, path: GuestPath, placement: Placement },
    /// On this machine.
    Host { path: PathBuf, placement: Placement },
}

impl Place {
    /// How `clap` reads one: bytes, since paths need not be text.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().try_map(Self::parse)
    }

    /// What has no slash before its first colon names a sandbox, as with `scp`.
    fn parse(text: OsString) -> Result<Self, ValueError> {
        if text == "-" {
            return Err(ValueError::new(
                "streams are not copied: `sandbar export ID:/PATH` writes a tar archive, `sandbar import ID:/PATH` reads one",
            ));
        }
        if text.is_empty() {
            return Err(ValueError::new("it is empty: expected a path, or ID:/PATH"));
        }
        let bytes = text.as_bytes();
        let colon = bytes.iter().position(|byte| matches!(byte, b':' | b'/')).filter(|at| bytes[*at] == b':');
        let Some(colon) = colon else {
            let placement = placement(bytes);
            return Ok(Self::Host { path: text.into(), placement });
        };
        let (id, path) = (&bytes[..colon], &bytes[colon + 1..]);
        let of_host = || format!("write `./{}` for a file of this machine", bytes.escape_ascii());
        if id.is_empty() {
            return Err(ValueError::new(format!(
                "there is no ID before the colon: expected ID:/PATH, or {}",
                of_host()
            )));
        }
        let id = std::str::from_utf8(id).map_err(|_| ValueError::new("the ID is not UTF-8"))?.to_owned();
        if !path.starts_with(b"/") {
            return Err(ValueError::new(format!(
                "a path in a sandbox has to be absolute: expected {}:/PATH, or {}",
                id.escape_debug(),
                of_host()
            )));
        }
        let placement = placement(path);
        let path = GuestPath::new(OsString::from_vec(path.to_vec()).into_vec())?;
        Ok(Self::Guest { id, path, placement })
    }
}

/// `ID:/PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GuestPlace {
    pub(crate) id: String,
    pub(crate) path: GuestPath,
}

impl GuestPlace {
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().try_map(Self::parse)
    }

    fn parse(text: OsString) -> Result<Self, ValueError> {
        let of_host = || ValueError::new("it is a path of this machine: expected ID:/PATH");
        if text == "-" {
            return Err(of_host());
        }
        match Place::parse(text)? {
            Place::Guest { id, path, .. } => Ok(Self { id, path }),
            Place::Host { .. } => Err(of_host()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn guest(id: &str, path: &str, placement: Placement) -> Place {
        Place::Guest { id: id.into(), path: GuestPath::new(path).unwrap(), placement }
    }

    #[test]
    fn a_colon_before_any_slash_names_a_sandbox() {
        for (text, place) in [
            ("demo:/a", guest("demo", "/a", Placement::IntoOrAs)),
            ("demo:/a/", guest("demo", "/a", Placement::Into)),
            ("demo:/a:b", guest("demo", "/a:b", Placement::IntoOrAs)),
            ("a", Place::Host { path: "a".into(), placement: Placement::IntoOrAs }),
            ("./a:b", Place::Host { path: "./a:b".into(), placement: Placement::IntoOrAs }),
            ("/x/a:/b/", Place::Host { path: "/x/a:/b/".into(), placement: Placement::Into }),
            (".", Place::Host { path: ".".into(), placement: Placement::Into }),
        ] {
            assert_eq!(Place::parse(text.into()).unwrap(), place, "{text}");
        }
        let odd = OsString::from_vec(b"demo:/\xff".to_vec());
        assert!(
            matches!(Place::parse(odd).unwrap(), Place::Guest { path, .. } if path.as_bytes() == b"/\xff")
        );
    }

    #[test]
    fn the_rest_is_refused_with_the_reason() {
        for (text, part) in [
            ("", "empty"),
            ("-", "tar"),
            (":/a", "no ID"),
            ("demo:a", "absolute"),
            ("demo:", "./demo:"),
            ("demo:/../a", "climbs"),
        ] {
            let error = Place::parse(text.into()).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn where_only_a_sandbox_will_do_a_path_of_this_machine_is_refused() {
        let place = GuestPlace::parse("demo:/a/".into()).unwrap();
        assert_eq!((place.id.as_str(), place.path.as_bytes()), ("demo", &b"/a"[..]));
        for text in ["a", "-", "./demo:/a", ""] {
            assert!(GuestPlace::parse(text.into()).unwrap_err().to_string().contains("ID:/PATH"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = Place::parse(OsString::from_vec(bytes));
        }
    }
}
