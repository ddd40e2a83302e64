use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Longest id, name or label key, in bytes: what the strictest backend's own names allow (63, as in DNS labels) does not fit
/// every vendor's template references, so this is the host name limit of RFC 1123.
const MAX_NAME: usize = 253;
/// Longest label value in bytes.
const MAX_LABEL_VALUE: usize = 4096;
/// Most labels on one sandbox.
const MAX_LABELS: usize = 128;

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $allowed:literal, $first:expr, $rest:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks `text`. It is refused, never changed to fit.
            pub fn new(text: impl Into<String>) -> Result<Self> {
                let text = text.into();
                let first: fn(u8) -> bool = $first;
                let rest: fn(u8) -> bool = $rest;
                let bytes = text.as_bytes();
                let well_formed = !bytes.is_empty()
                    && bytes.len() <= MAX_NAME
                    && first(bytes[0])
                    && bytes.iter().copied().all(rest);
                if well_formed {
                    Ok(Self(text))
                } else {
                    Err(Error::invalid(
                        concat!("parse ", $what),
                        format!(
                            concat!("`{}` is not a valid ", $what, ": expected 1 to {} of ", $allowed),
                            text.escape_debug(),
                            MAX_NAME
                        ),
                    ))
                }
            }

            /// The text as it was given.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<Self> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type!(
    /// Names one sandbox within its backend. Made by the backend, opaque to callers.
    SandboxId,
    "sandbox id",
    "`a-z A-Z 0-9 _ -`, starting with a letter or digit",
    |b| b.is_ascii_alphanumeric(),
    |b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')
);
name_type!(
    /// A name that the caller gave a sandbox; unique among the backend's sandboxes.
    SandboxName,
    "sandbox name",
    "`a-z A-Z 0-9 _ . -`, starting with a letter or digit",
    |b| b.is_ascii_alphanumeric(),
    |b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')
);
name_type!(
    /// The caller's project.
    ProjectId,
    "project id",
    "printable ASCII without spaces",
    |b| b.is_ascii_graphic(),
    |b| b.is_ascii_graphic()
);
name_type!(
    /// A template, by the caller's own id.
    TemplateId,
    "template id",
    "`a-z A-Z 0-9 _ . : / -`, starting with a letter or digit",
    |b| b.is_ascii_alphanumeric(),
    |b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':' | b'/')
);
name_type!(
    /// A volume.
    VolumeName,
    "volume name",
    "`a-z A-Z 0-9 _ . -`, starting with a letter or digit",
    |b| b.is_ascii_alphanumeric(),
    |b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')
);
name_type!(
    /// A user inside a sandbox, such as `user` or `root`.
    UserName,
    "user name",
    "`a-z A-Z 0-9 _ . -`, starting with a letter, digit or `_`",
    |b| b.is_ascii_alphanumeric() || b == b'_',
    |b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')
);

/// Key and value pairs on a sandbox, the caller's own.
///
/// Keys that start with `sandbar.` belong to Sandbar and are refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    /// Keys under this prefix are Sandbar's own.
    pub const RESERVED_PREFIX: &'static str = "sandbar.";

    /// No labels.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces one label. Refuses reserved and empty keys, control characters, and more than the limits allow.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<String>) -> Result<()> {
        let (key, value) = (key.into(), value.into());
        let complain = |why: String| Err(Error::invalid("parse label", why));
        if key.is_empty() || key.len() > MAX_NAME || key.chars().any(char::is_control) {
            return complain(format!(
                "`{}` is not a valid label key: expected 1 to {MAX_NAME} bytes without control characters",
                key.escape_debug()
            ));
        }
        if key.starts_with(Self::RESERVED_PREFIX) {
            return complain(format!(
                "label `{key}` starts with `{}`, which is reserved",
                Self::RESERVED_PREFIX
            ));
        }
        if value.len() > MAX_LABEL_VALUE || value.contains('\0') {
            return complain(format!(
                "the value of label `{key}` is not valid: expected at most {MAX_LABEL_VALUE} bytes without NUL"
            ));
        }
        if self.0.len() >= MAX_LABELS && !self.0.contains_key(&key) {
            return complain(format!("more than {MAX_LABELS} labels"));
        }
        self.0.insert(key, value);
        Ok(())
    }

    /// As [`Labels::insert`], for chaining.
    pub fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Result<Self> {
        self.insert(key, value)?;
        Ok(self)
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// All labels, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether every label of `wanted` is here with the same value.
    pub fn contains_all(&self, wanted: &Labels) -> bool {
        wanted.iter().all(|(key, value)| self.get(key) == Some(value))
    }
}
