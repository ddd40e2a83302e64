use serde::{Deserialize, Serialize};

/// Longest name of an actor in bytes: room for an address or the subject of a token.
pub(crate) const MAX_ACTOR: usize = 256;

/// Who did it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// Process number.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
    /// What that process is.
    pub role: Role,
    /// The name that the caller gave, of at most 256 bytes.
    pub name: Option<String>,
}

/// What a process that writes to the record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It called an operation.
    Caller,
    /// It guards the sandbox.
    Guard,
}

impl Actor {
    /// This process, as `role`, under the caller's `name`.
    pub fn this_process(role: Role, name: Option<&str>) -> Self {
        let name = name.map(|name| {
            let end = (0..=MAX_ACTOR.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
            name[..end.unwrap_or(0)].to_owned()
        });
        Self { pid: std::process::id(), uid: rustix::process::geteuid().as_raw(), role, name }
    }
}
