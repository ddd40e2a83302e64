use std::fmt;

use sandbar_core::{Error, ErrorKind, Result};

/// What a sealed authority starts with: what it is, and the version of its form.
const MAGIC: &[u8; 5] = b"sbca\x01";

/// An authority with its key, as bytes. `Debug` does not show them.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedAuthority(Vec<u8>);

impl SealedAuthority {
    /// The bytes, of which some are secret.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SealedAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedAuthority").finish_non_exhaustive()
    }
}

/// What an authority is made of.
#[derive(PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) label: String,
    /// When, in seconds since 1970.
    pub(super) began: u64,
    /// PKCS#8.
    pub(super) key: Vec<u8>,
    /// DER.
    pub(super) certificate: Vec<u8>,
}

impl Parts {
    pub(super) fn write(&self) -> SealedAuthority {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.began.to_be_bytes());
        for part in [self.label.as_bytes(), &self.key, &self.certificate] {
            // Each is far below 64 KiB; a longer one would be cut, and not read again.
            bytes.extend_from_slice(&u16::try_from(part.len()).unwrap_or(0).to_be_bytes());
            bytes.extend_from_slice(part);
        }
        SealedAuthority(bytes)
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let refused = || {
            Error::new(
                ErrorKind::Protocol,
                "read certificate authority",
                "the sealed authority is damaged, or of another version",
            )
        };
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(refused)?;
        let (began, mut rest) = rest.split_first_chunk().ok_or_else(refused)?;
        let mut part = || {
            let (length, after) = rest.split_first_chunk()?;
            let (part, after) = after.split_at_checked(u16::from_be_bytes(*length).into())?;
            rest = after;
            Some(part.to_vec())
        };
        let (Some(label), Some(key), Some(certificate)) = (part(), part(), part()) else {
            return Err(refused());
        };
        if !rest.is_empty() {
            return Err(refused());
        }
        let label = String::from_utf8(label).map_err(|_| refused())?;
        Ok(Self { label, began: u64::from_be_bytes(*began), key, certificate })
    }
}
