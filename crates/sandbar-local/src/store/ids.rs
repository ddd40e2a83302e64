use std::fmt;

use sandbar_core::Result;
use sandbar_engine::{Host, IdMode, Owners, SubIds};
use serde::{Deserialize, Serialize};

use crate::error::{fail, io_error};
use crate::id::random_text;

/// First host id of what root's store has on disk: 0x7FFE0000, the 65,536 ids that systemd's table (`UIDS-GIDS.md`) has for files of foreign
/// images at rest, which nothing runs as. What is set on such a file is no privilege of the host's.
pub(crate) const STORE_BASE: u32 = 0x7ffe_0000;

/// Start of the ids of layers that are named by their content: a SHA-256 digest in hexadecimal digits follows.
const BY_CONTENT: &str = "sha256-";
/// Start of the ids of layers that are a moment of a sandbox: random characters follow. Naming one by its content would take as long as reading it.
const BY_CHANCE: &str = "snap-";
/// Characters after [`BY_CHANCE`]: 120 bits.
const RANDOM: usize = 24;
/// Hexadecimal digits of a SHA-256 digest.
const DIGITS: usize = 64;

/// Names a layer. It is a name of a folder as well, so its form is checked wherever it comes from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct LayerId(String);

impl LayerId {
    /// Of a layer with this content: 64 hexadecimal digits.
    pub(crate) fn of_content(digest: &str) -> Result<Self> {
        Self::try_from(format!("{BY_CONTENT}{digest}"))
            .map_err(|why| fail(sandbar_core::ErrorKind::Unexpected, "name a layer", why))
    }

    /// A new one, that no other layer has.
    pub(crate) fn random() -> Result<Self> {
        let text = random_text(RANDOM).map_err(|cause| io_error("name a layer", "random numbers", cause))?;
        Ok(Self(format!("{BY_CHANCE}{text}")))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a moment of a sandbox, and not named by what is in it.
    pub(crate) fn is_snapshot(&self) -> bool {
        self.0.starts_with(BY_CHANCE)
    }
}

impl TryFrom<String> for LayerId {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let well_formed = if let Some(digest) = text.strip_prefix(BY_CONTENT) {
            digest.len() == DIGITS && digest.bytes().all(is_hex)
        } else if let Some(random) = text.strip_prefix(BY_CHANCE) {
            random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
        } else {
            false
        };
        if well_formed { Ok(Self(text)) } else { Err(format!("`{}` is no layer's id", text.escape_debug())) }
    }
}

impl From<LayerId> for String {
    fn from(id: LayerId) -> Self {
        id.0
    }
}

impl fmt::Display for LayerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LayerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LayerId({})", self.0)
    }
}

/// Whose the files of a layer or a volume are on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub(crate) enum StoreIds {
    /// This id on disk is 0 inside, and so on: root's. [`STORE_BASE`], or the range of the sandbox that it is a moment of.
    Range { first: u32 },
    /// 0 inside is the caller, the others are its subordinate ids.
    Subordinate(SubIds),
    /// All is the caller's.
    Single,
}

impl StoreIds {
    /// Those of what is made for the store itself.
    pub(crate) fn of(host: &Host) -> Self {
        if host.needs_range() {
            Self::Range { first: STORE_BASE }
        } else {
            Self::of_sandbox(&host.user_id_mode())
        }
    }

    /// Those of what a sandbox with these ids wrote.
    pub(crate) fn of_sandbox(ids: &IdMode) -> Self {
        match ids {
            IdMode::Range { base, .. } => Self::Range { first: *base },
            IdMode::Subordinate(ids) => Self::Subordinate(ids.clone()),
            IdMode::Single => Self::Single,
        }
    }

    /// For those who write and remove it: ids inside a user namespace of theirs.
    pub(crate) fn to_mode(&self) -> IdMode {
        match self {
            Self::Range { first } => IdMode::range(*first),
            Self::Subordinate(ids) => IdMode::Subordinate(ids.clone()),
            Self::Single => IdMode::Single,
        }
    }

    /// For a launch.
    pub(crate) fn owners(&self) -> Owners {
        match self {
            Self::Range { first } => Owners::From(*first),
            // Mounts map nothing there.
            Self::Subordinate(_) | Self::Single => Owners::Inside,
        }
    }

    /// Why a sandbox with these ids can't use it; `None` if it can.
    pub(crate) fn mismatch(&self, ids: &IdMode) -> Option<&'static str> {
        match (self, ids) {
            (Self::Range { .. }, IdMode::Range { .. }) | (Self::Single, IdMode::Single) => None,
            (Self::Subordinate(stored), IdMode::Subordinate(now)) if stored == now => None,
            (Self::Subordinate(_), IdMode::Subordinate(_)) => {
                Some("it was made with other subordinate ids than this user has now")
            }
            (Self::Subordinate(_), IdMode::Single) => {
                Some("it was made with subordinate ids, and this sandbox has a single one")
            }
            // Everything is the caller's, who is `root` there and `user` here.
            (Self::Single, IdMode::Subordinate(_)) => {
                Some("it was made with a single id, and this sandbox has subordinate ones")
            }
            _ => Some("it was made by another user"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_one_form_and_can_be_no_path() {
        let digest = "0123456789abcdef".repeat(4);
        let by_content = LayerId::of_content(&digest).unwrap();
        assert!(!by_content.is_snapshot() && LayerId::random().unwrap().is_snapshot());
        let text = serde_json::to_string(&by_content).unwrap();
        assert_eq!(serde_json::from_str::<LayerId>(&text).unwrap(), by_content);
        for bad in [
            "",
            "sha256-",
            "sha256-0",
            "snap-../../etc",
            "x",
            "..",
            &format!("sha256-{}", digest.to_uppercase()),
        ] {
            assert!(LayerId::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
