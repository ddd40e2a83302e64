use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::HttpError;

/// Uploads carry metadata in headers with this prefix (compared in lower case).
pub const METADATA_HEADER_PREFIX: &str = "x-metadata-";
/// Metadata is kept in extended attributes with this prefix.
pub const METADATA_XATTR_PREFIX: &str = "user.e2b.";
/// Longest key, in bytes: an attribute name has 255, less the prefix.
pub const METADATA_KEY_MAX: usize = 246;
/// Most bytes of keys and values together (one block of ext4).
pub const METADATA_TOTAL_MAX: usize = 4096;

/// What a signed URL permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Download.
    Read,
    /// Upload.
    Write,
}

/// The `signature` parameter of a signed URL. `path` is exactly as in the query, `user` empty where there is none,
/// `expiration` in Unix seconds.
pub fn sign(path: &str, operation: Operation, user: &str, token: &str, expiration: Option<i64>) -> String {
    let operation = match operation {
        Operation::Read => "read",
        Operation::Write => "write",
    };
    let mut raw = format!("{path}:{operation}:{user}:{token}");
    if let Some(expiration) = expiration {
        raw.push(':');
        raw.push_str(&expiration.to_string());
    }
    format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(raw.as_bytes())))
}

/// Whether a given signature is the expected one; takes the same time wherever they differ.
pub fn signature_matches(expected: &str, given: &str) -> bool {
    tokens_equal(expected, given)
}

/// Compares two secrets in a time that depends on the length of the given one only.
pub fn tokens_equal(expected: &str, given: &str) -> bool {
    let (expected, given) = (Sha256::digest(expected.as_bytes()), Sha256::digest(given.as_bytes()));
    expected.iter().zip(given.iter()).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// Collects an upload's metadata from its headers; a header of another kind is passed over.
pub fn metadata_from_headers<'a>(
    headers: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> Result<BTreeMap<String, String>, HttpError> {
    let mut metadata = BTreeMap::new();
    let mut total = 0;
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        let Some(key) = name.strip_prefix(METADATA_HEADER_PREFIX) else { continue };
        let printable = |bytes: &[u8]| bytes.iter().all(|byte| (0x20..0x7f).contains(byte));
        if key.is_empty() || key.len() > METADATA_KEY_MAX || !printable(key.as_bytes()) {
            return Err(HttpError::new(
                400,
                format!("metadata key `{key}` is not 1 to {METADATA_KEY_MAX} bytes"),
            ));
        }
        let Some(value) = std::str::from_utf8(value).ok().filter(|value| printable(value.as_bytes())) else {
            return Err(HttpError::new(400, format!("metadata value of `{key}` is not printable ASCII")));
        };
        total += key.len() + value.len();
        if total > METADATA_TOTAL_MAX {
            return Err(HttpError::new(400, format!("metadata is above {METADATA_TOTAL_MAX} bytes")));
        }
        metadata.insert(key.to_owned(), value.to_owned());
    }
    Ok(metadata)
}

/// One file of the answer to an upload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileEntry {
    /// Absolute path.
    pub path: String,
    /// Its last part.
    pub name: String,
    /// Always `file`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What is stored with it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// `POST /files/compose`: joins files that exist into one and deletes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ComposeRequest {
    /// In order.
    pub source_paths: Vec<String>,
    /// Replaced in one step.
    pub destination: String,
    /// Whose paths and whose file; absent means the default user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
}

/// The trailer in which the answer of `GET /sandbar/archive` says why it ended early, as an [`HttpError`](super::HttpError) in JSON. It is
/// sent to clients that ask for trailers; for others the answer breaks off.
pub const ARCHIVE_ERROR_TRAILER: &str = "sandbar-error";

/// What an import of an archive brought: the answer of `POST /sandbar/archive`, which is no endpoint of envd's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ArchiveReport {
    /// Members.
    pub entries: u64,
    /// Bytes of content.
    pub bytes: u64,
}

/// How the folders are called, in hexadecimal digits after this, in which an import puts together what is to be moved to its place.
pub const ARCHIVE_STAGING_PREFIX: &str = ".sandbar-import-";
/// How many digits those are.
pub const ARCHIVE_STAGING_DIGITS: usize = 24;

/// Whether a name is that of such a folder.
pub fn is_archive_staging(name: &[u8]) -> bool {
    name.strip_prefix(ARCHIVE_STAGING_PREFIX.as_bytes()).is_some_and(|digits| {
        digits.len() == ARCHIVE_STAGING_DIGITS && digits.iter().all(u8::is_ascii_hexdigit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_an_import_makes_is_taken_for_it() {
        let name = format!("{ARCHIVE_STAGING_PREFIX}0123456789abcdef01234567");
        assert!(is_archive_staging(name.as_bytes()));
        for other in [ARCHIVE_STAGING_PREFIX, &name[1..], &name[..name.len() - 1], &format!("{name}0"), "x"] {
            assert!(!is_archive_staging(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn signature_has_the_published_value() {
        let signature = sign("hello.txt", Operation::Read, "user", "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0", None);
        assert_eq!(signature, "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E");
        let expiring =
            sign("hello.txt", Operation::Read, "user", "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0", Some(1));
        assert!(!signature_matches(&signature, &expiring) && signature_matches(&signature, &signature));
    }

    #[test]
    fn metadata_is_bounded_and_lowercased() {
        let read = |name: &str, value: &[u8]| metadata_from_headers([(name, value)].into_iter());
        assert_eq!(read("X-Metadata-Foo", b"Bar").unwrap()["foo"], "Bar");
        assert!(read("content-type", b"x").unwrap().is_empty());
        assert_eq!(read("x-metadata-a", "é".as_bytes()).unwrap_err().code, 400);
        assert_eq!(read("x-metadata-a", &[b'x'; METADATA_TOTAL_MAX]).unwrap_err().code, 400);
        assert!(read("x-metadata-a", &[b'x'; METADATA_TOTAL_MAX - 1]).is_ok());
        assert!(read(&format!("x-metadata-{}", "k".repeat(METADATA_KEY_MAX)), b"").is_ok());
        assert!(read(&format!("x-metadata-{}", "k".repeat(METADATA_KEY_MAX + 1)), b"").is_err());
    }
}
