use std::fmt;

use serde::{Deserialize, Serialize};

use super::hostname::shown;
use crate::{Error, Result};

/// Longest header name and value that is injected, in bytes: what servers take of one header line (8 KiB in most).
const MAX_HEADER: usize = 8 << 10;

/// A header that the gateway puts into each request that a rule allows, so that its value never enters the sandbox. What the sandbox itself sends
/// under this name is dropped. Neither `Debug` nor serialisation shows the value: whoever passes it on asks for it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderInjection {
    header: String,
    #[serde(skip)]
    value: Option<String>,
}

/// Headers that shape the message itself, or name the host that was judged.
const FORBIDDEN: &[&str] = &[
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl HeaderInjection {
    /// A header and its value. The error names the header and never the value.
    pub fn new(header: &str, value: impl Into<String>) -> Result<Self> {
        let refused = |why: &str| {
            Err(Error::invalid("parse header injection", format!("header `{}` {why}", shown(header))))
        };
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if header.is_empty() || header.len() > MAX_HEADER || !header.bytes().all(is_token) {
            return refused("is not a header name: expected letters, digits and `-`");
        }
        let header_name = header.to_ascii_lowercase();
        if FORBIDDEN.contains(&header_name.as_str()) {
            return refused("can't be injected: it says how the message is to be read");
        }
        let value = value.into();
        if value.len() > MAX_HEADER {
            return refused(&format!("has a value longer than {MAX_HEADER} bytes"));
        }
        if !value.bytes().all(|b| b == b'\t' || (0x20..0x7f).contains(&b)) || value.trim() != value {
            return refused(
                "has a value that can't be sent: expected printable ASCII without space around it",
            );
        }
        Ok(Self { header: header_name, value: Some(value) })
    }

    /// The header's name, in lower case.
    pub fn header(&self) -> &str {
        &self.header
    }

    /// The secret, where it is known: a policy that was read back knows the name only.
    pub fn reveal(&self) -> Option<&str> {
        self.value.as_deref()
    }
}

impl fmt::Debug for HeaderInjection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HeaderInjection").field(&self.header).finish()
    }
}
