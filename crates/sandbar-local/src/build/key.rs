use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::Path;

use sandbar_core::{BuildStep, Result};
use sandbar_engine::Host;
use sha2::{Digest as _, Sha256};

use crate::capture::hex;
use crate::error::io_error;
use crate::store::{Boot, StoreIds};
use crate::template::Base;

const BUILD: &str = "build";
/// The way that keys are made in; another number finds no result of before.
const FORM: &str = "sandbar build 1";
/// Bytes read at once of what is copied.
const PIECE: usize = 256 << 10;

/// Names what a step leads to, by all that it depends on: 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key(String);

impl Key {
    /// Of what a build begins with, and among whose results it looks: keys of another scope have nothing in common with these.
    pub(super) fn of_base(boot: &Boot, scope: Option<&str>) -> Result<Self> {
        let mut digest = Sha256::new();
        let ids = serde_json::to_string(&StoreIds::of(&Host::observe()))
            .map_err(|cause| io_error(BUILD, "the ids of the store", cause))?;
        field(&mut digest, FORM.as_bytes());
        field(&mut digest, ids.as_bytes());
        if let Some(scope) = scope {
            field(&mut digest, b"scope");
            field(&mut digest, scope.as_bytes());
        }
        if boot.on_host {
            // What lies below all layers and is not one.
            field(&mut digest, Base::observe()?.fingerprint.as_bytes());
        }
        for layer in &boot.layers {
            field(&mut digest, layer.as_str().as_bytes());
        }
        let defaults = serde_json::to_vec(&boot.defaults)
            .map_err(|cause| io_error(BUILD, "what the base has for its sandboxes", cause))?;
        field(&mut digest, &defaults);
        Ok(Self(hex(digest)))
    }

    /// Of a step after what this names; `content` is the digest of what it copies.
    pub(super) fn after(&self, step: &BuildStep, content: Option<&str>) -> Self {
        let mut digest = Sha256::new();
        field(&mut digest, self.0.as_bytes());
        field(&mut digest, content.unwrap_or_default().as_bytes());
        match step {
            BuildStep::Run(command) => argv(&mut digest, b"run", command),
            BuildStep::Start(command) => argv(&mut digest, b"start", command),
            BuildStep::Ready(command) => argv(&mut digest, b"ready", command),
            BuildStep::Copy { to, .. } | BuildStep::CopyFile { to, .. } => {
                field(&mut digest, b"copy");
                field(&mut digest, to.as_bytes());
            }
            BuildStep::Env(env) => {
                field(&mut digest, b"env");
                for (name, value) in env.iter() {
                    field(&mut digest, name.as_bytes());
                    field(&mut digest, value.as_bytes());
                }
            }
            BuildStep::Workdir(path) => {
                field(&mut digest, b"workdir");
                field(&mut digest, path.as_bytes());
            }
            BuildStep::User(user) => {
                field(&mut digest, b"user");
                field(&mut digest, user.as_str().as_bytes());
            }
            // Refused before it comes to this.
            _ => field(&mut digest, b"unknown"),
        }
        Self(hex(digest))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// With its length, so that no two lists of fields look the same.
fn field(digest: &mut Sha256, bytes: &[u8]) {
    digest.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
    digest.update(bytes);
}

fn argv(digest: &mut Sha256, kind: &[u8], command: &sandbar_core::Command) {
    field(digest, kind);
    for argument in command.argv() {
        field(digest, argument.as_encoded_bytes());
    }
}

/// The digest of a file's content, and the file at its beginning. Blocks.
pub(super) fn opened(path: &Path) -> Result<(String, File)> {
    let broken = |cause: std::io::Error| io_error(BUILD, &format!("`{}`", path.display()), cause);
    let mut file = File::open(path).map_err(broken)?;
    let mut digest = Sha256::new();
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece).map_err(broken)? {
            0 => break,
            got => digest.update(&piece[..got]),
        }
    }
    file.rewind().map_err(broken)?;
    Ok((hex(digest), file))
}

/// The digest of what is in memory.
pub(super) fn digest_of(bytes: &[u8]) -> String {
    hex(Sha256::new_with_prefix(bytes))
}
