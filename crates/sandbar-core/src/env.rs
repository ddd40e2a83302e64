use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Longest single `NAME=value` in bytes: Linux refuses a longer string at `execve` (`MAX_ARG_STRLEN`, 32 pages of 4 KiB).
const MAX_ENTRY: usize = 131_072 - 1;

/// Environment variables. `Debug` shows names only, since values are often secrets.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EnvVars(BTreeMap<String, String>);

impl EnvVars {
    /// No variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a variable. The name must match `[A-Za-z_][A-Za-z0-9_]*`, the value must not hold NUL, and both together must fit what
    /// the kernel takes. The error names the variable and never its value.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<String>) -> Result<()> {
        let (name, value) = (name.into(), value.into());
        let mut bytes = name.bytes();
        let well_formed = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
            && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !well_formed {
            return Err(Error::invalid(
                "parse environment variable",
                format!(
                    "`{}` is not a valid variable name: expected letters, digits and `_`, not starting with a digit",
                    name.escape_debug()
                ),
            ));
        }
        if value.contains('\0') {
            return Err(Error::invalid(
                "parse environment variable",
                format!("the value of `{name}` holds a NUL byte"),
            ));
        }
        if name.len() + 1 + value.len() > MAX_ENTRY {
            return Err(Error::invalid(
                "parse environment variable",
                format!("`{name}` is longer than {MAX_ENTRY} bytes with its value"),
            ));
        }
        self.0.insert(name, value);
        Ok(())
    }

    /// As [`EnvVars::insert`], for chaining.
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Result<Self> {
        self.insert(name, value)?;
        Ok(self)
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All variables, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for EnvVars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
