//! Sandbar's extension of the process service: `ListAll` and `SignalAny`, for processes that nobody started through the protocol too. A guest without
//! it answers `unimplemented`.

use serde::{Deserialize, Serialize};

use super::Signal;
use super::json::{integer, is_default, or_default};

/// Answer of `ListAll`, whose question is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessTable {
    /// Every process, but for the guest daemon's own.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub processes: Vec<ProcessRow>,
}

/// A process as the kernel knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ProcessRow {
    /// Its id inside the sandbox.
    #[serde(deserialize_with = "integer")]
    pub pid: u32,
    /// Its parent, where that is a process of this table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// Who runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The kernel's letter for its state (proc(5)).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<char>,
    /// When it began, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_unix_ms: Option<i64>,
    /// Program and arguments, as the process shows them; cut where they are long.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub argv: Vec<String>,
    /// What is known of one that was started through the protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<StartedRow>,
}

/// What is known of a process that was started through the protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StartedRow {
    /// Its tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Its working folder as it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// How it is talked to.
    pub input: RowInput,
}

/// How a process is talked to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowInput {
    /// By its terminal.
    Terminal,
    /// By its standard input.
    Open,
    /// Not at all.
    #[default]
    None,
}

/// `SignalAny`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SignalAnyRequest {
    /// To which process, by its id inside the sandbox.
    #[serde(deserialize_with = "integer")]
    pub pid: u32,
    /// Which signal.
    pub signal: Signal,
    /// Whether to all that it started, too.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub tree: bool,
}

#[cfg(test)]
mod tests {
    use super::super::json::round;
    use super::*;

    #[test]
    fn forms_come_back_as_they_went() {
        let row = ProcessRow {
            pid: 7,
            parent: Some(3),
            user: Some("user".into()),
            state: Some('S'),
            started_unix_ms: Some(1_700_000_000_123),
            argv: vec!["sleep".into(), "60".into()],
            started: Some(StartedRow { tag: Some("t".into()), cwd: None, input: RowInput::Terminal }),
        };
        let table = ProcessTable { processes: vec![row, ProcessRow { pid: 8, ..ProcessRow::default() }] };
        assert_eq!(round(&table), table);
        let request = SignalAnyRequest { pid: 7, signal: Signal::KILL, tree: true };
        assert_eq!(round(&request), request);
    }
}
