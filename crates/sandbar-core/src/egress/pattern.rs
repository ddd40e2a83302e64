use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::hostname::shown;
use crate::{Error, Hostname, Result};

/// Which names a rule means.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum NamePattern {
    /// This name.
    Exact(Hostname),
    /// Every name below it, at any depth, and not itself: `*.example.com`.
    Below(Hostname),
}

impl NamePattern {
    /// Reads `name` or `*.name`.
    pub fn parse(text: &str) -> Result<Self> {
        if let Some(suffix) = text.strip_prefix("*.") {
            return Hostname::parse(suffix).map(Self::Below);
        }
        if text.contains('*') {
            let message = format!(
                "`{}` is not a name pattern: `*` may only stand for whole labels at the start, as in `*.example.com`",
                shown(text)
            );
            let error = Error::invalid("parse name pattern", message);
            return Err(if text == "*" {
                error.with_hint("to allow every public address, allow all")
            } else {
                error
            });
        }
        Hostname::parse(text).map(Self::Exact)
    }

    /// Whether `name` is meant.
    pub fn matches(&self, name: &Hostname) -> bool {
        match self {
            Self::Exact(exact) => exact == name,
            Self::Below(suffix) => name.is_below(suffix),
        }
    }
}

impl FromStr for NamePattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl TryFrom<String> for NamePattern {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

impl From<NamePattern> for String {
    fn from(pattern: NamePattern) -> Self {
        pattern.to_string()
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => name.fmt(f),
            Self::Below(suffix) => write!(f, "*.{suffix}"),
        }
    }
}
