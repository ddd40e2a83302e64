use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Largest request, in bytes: what a sequenced packet holds by default is about 200 KiB.
pub(super) const MAX_REQUEST: usize = 128 << 10;
/// Largest packet after the request, in bytes.
pub(super) const MAX_PACKET: usize = 4 << 10;
/// Descriptors of a request: standard input, output and error.
pub(super) const DESCRIPTORS: usize = 3;

/// The first packet, with three descriptors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Request {
    pub(super) user: String,
    pub(super) action: Action,
    pub(super) argv: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) cwd: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    /// Only ask whether it would be allowed.
    #[default]
    Check,
    /// `argv`.
    Run,
    /// The user's shell, with `argv` as its command where there is one.
    Shell,
    /// The same as a login shell, in the user's home.
    Login,
}

/// Later packets to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Forward {
    pub(super) signal: i32,
}

/// Packets from the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// It would be allowed.
    Allowed,
    /// It is not, or could not be done; for the person.
    Refused(String),
    /// It runs.
    Started,
    /// It ended with that code.
    Exited(i32),
    /// It was ended by that signal.
    Signaled(i32),
}
