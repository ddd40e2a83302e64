use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Longest single `NAME=value` in bytes: Linux refuses a longer string at `execve` (`MAX_ARG_STRLEN`, 32 pages of 4 KiB).
const MAX_ENTRY: usize = 131_072 - 1;
/// Most bytes of all variables of one set, each with its `=` and NUL: half of what Linux lets a program start with at the usual limit of the stack, 8 MiB
/// (`execve(2)`: a quarter of it for arguments and environment together).
const MAX_TOTAL: usize = 1 << 20;

/// Environment variables. `Debug` shows names only, since values are often secrets.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct EnvVars {
    variables: BTreeMap<String, String>,
    /// What they take together, as [`MAX_TOTAL`] counts.
    bytes: usize,
}

impl EnvVars {
    /// Most bytes that the variables of one set take together, each with its `=` and NUL.
    pub const MAX_BYTES: usize = MAX_TOTAL;

    /// Most bytes of one variable, its value and the `=` between.
    pub const MAX_VARIABLE: usize = MAX_ENTRY;

    /// No variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a variable. The name must match `[A-Za-z_][A-Za-z0-9_]*`, the value must not hold NUL, and both together must fit what
    /// the kernel takes, as must all variables together: 1 MiB at most. The error names the variable and never its value.
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
        let replaced = self.variables.get(&name).map_or(0, |value| size(&name, value));
        let bytes = self.bytes - replaced + size(&name, &value);
        if bytes > MAX_TOTAL {
            return Err(Error::invalid(
                "parse environment variable",
                format!("with `{name}` the variables take more than {MAX_TOTAL} bytes together"),
            )
            .with_hint("put long values in a file"));
        }
        self.bytes = bytes;
        self.variables.insert(name, value);
        Ok(())
    }

    /// As [`EnvVars::insert`], for chaining.
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Result<Self> {
        self.insert(name, value)?;
        Ok(self)
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// All variables, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// What they take together, as [`EnvVars::MAX_BYTES`] counts.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.variables.is_empty()
    }
}

/// What a variable takes where a program starts.
fn size(name: &str, value: &str) -> usize {
    name.len() + value.len() + 2
}

impl From<BTreeMap<String, String>> for EnvVars {
    /// What is read as it was written: its variables were looked at when they were added.
    fn from(variables: BTreeMap<String, String>) -> Self {
        let bytes = variables.iter().map(|(name, value)| size(name, value)).sum();
        Self { variables, bytes }
    }
}

impl From<EnvVars> for BTreeMap<String, String> {
    fn from(env: EnvVars) -> Self {
        env.variables
    }
}

impl fmt::Debug for EnvVars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_together_are_bounded_and_what_is_replaced_counts_once() {
        let mut env = EnvVars::new();
        let value = "x".repeat(100_000);
        for _ in 0..20 {
            env.insert("SAME", value.as_str()).unwrap();
        }
        assert_eq!(env.bytes(), value.len() + 6);
        let mut number = 0;
        let error = loop {
            number += 1;
            if let Err(error) = env.insert(format!("V{number}"), value.as_str()) {
                break error;
            }
        };
        assert!(env.bytes() <= EnvVars::MAX_BYTES && number == 10, "{number}");
        assert!(error.message().contains("`V10`") && !error.message().contains("xxx"), "{error}");
        let read: EnvVars = serde_json::from_str(&serde_json::to_string(&env).unwrap()).unwrap();
        assert_eq!(read, env);
    }
}
