use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// Longest guest path in bytes: Linux' `PATH_MAX` less the closing NUL.
const MAX_PATH: usize = 4095;

/// A path inside a sandbox: absolute, bytes, `/`-separated, without NUL and without `..`.
///
/// It is not a host path and can't be turned into one by accident. Repeated and trailing slashes and `.` segments are dropped.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GuestPath(Vec<u8>);

impl GuestPath {
    /// Checks and normalises `path`.
    pub fn new(path: impl AsRef<[u8]>) -> Result<Self> {
        let path = path.as_ref();
        let complain = |why: &str| {
            Err(Error::invalid(
                "parse path",
                format!("`{}` is not a valid guest path: {why}", path.escape_ascii()),
            ))
        };
        if path.contains(&0) {
            return complain("it holds a NUL byte");
        }
        if path.len() > MAX_PATH {
            return complain("it is longer than 4095 bytes");
        }
        if path.first() != Some(&b'/') {
            return complain("expected an absolute path that starts with `/`");
        }
        let mut normal = Vec::with_capacity(path.len());
        for segment in path.split(|b| *b == b'/') {
            match segment {
                b"" | b"." => {}
                b".." => return complain("it climbs with `..`"),
                _ => {
                    normal.push(b'/');
                    normal.extend_from_slice(segment);
                }
            }
        }
        if normal.is_empty() {
            normal.push(b'/');
        }
        Ok(Self(normal))
    }

    /// The path's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path as text, if it is UTF-8.
    pub fn to_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// Whether this is `/`.
    pub fn is_root(&self) -> bool {
        self.0 == b"/"
    }

    /// The last segment; `None` for `/`.
    pub fn file_name(&self) -> Option<&[u8]> {
        self.0.rsplit(|b| *b == b'/').next().filter(|name| !name.is_empty())
    }

    /// The folder that holds this; `None` for `/`.
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        let cut = self.0.iter().rposition(|b| *b == b'/').unwrap_or(0);
        Some(Self(self.0[..cut.max(1)].to_vec()))
    }

    /// This path with `segments` (a relative path) below it.
    pub fn join(&self, segments: impl AsRef<[u8]>) -> Result<Self> {
        let mut joined = self.0.clone();
        joined.push(b'/');
        joined.extend_from_slice(segments.as_ref());
        Self::new(joined)
    }

    /// Whether this is `other` or lies below it.
    pub fn is_within(&self, other: &Self) -> bool {
        other.is_root()
            || self.0 == other.0
            || (self.0.starts_with(&other.0) && self.0.get(other.0.len()) == Some(&b'/'))
    }

    /// The path for a person, with bytes that are not text escaped.
    pub fn display(&self) -> Cow<'_, str> {
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.chars().any(char::is_control) => Cow::Borrowed(text),
            _ => Cow::Owned(self.0.escape_ascii().to_string()),
        }
    }
}

impl fmt::Display for GuestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.display())
    }
}

impl fmt::Debug for GuestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GuestPath({})", self.display())
    }
}

impl FromStr for GuestPath {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Self::new(text)
    }
}

impl serde::Serialize for GuestPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.display())
    }
}
