use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::json::{base64_bytes, integer, is_default, or_default};
use super::{Channel, Signal};

/// A message without fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

/// What to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessConfig {
    /// Program: a path, or a name looked up in the `PATH` of the process.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub cmd: String,
    /// Arguments after the program's name.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub args: Vec<String>,
    /// Environment in addition to the sandbox's.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub envs: BTreeMap<String, String>,
    /// Working folder; absent means the sandbox's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// Size of a terminal, in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PtySize {
    /// Columns.
    #[serde(deserialize_with = "integer")]
    pub cols: u32,
    /// Rows.
    #[serde(deserialize_with = "integer")]
    pub rows: u32,
}

/// A terminal for a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pty {
    /// Its size; absent leaves the kernel's 0 by 0.
    pub size: Option<PtySize>,
}

/// `Start`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StartRequest {
    /// What to run.
    #[serde(deserialize_with = "or_default")]
    pub process: ProcessConfig,
    /// Absent: three pipes instead of a terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pty: Option<Pty>,
    /// A name to find the process by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Whether standard input is a pipe; `false` is `/dev/null`, absent is `true` (clients older than envd 0.3.0).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<bool>,
}

/// Which process is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessSelector {
    /// By process id inside the sandbox.
    #[serde(deserialize_with = "optional_u32", skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// By the tag of its `Start`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

impl ProcessSelector {
    /// The process with that id.
    pub const fn pid(pid: u32) -> Self {
        Self { pid: Some(pid), tag: None }
    }

    /// The process with that tag.
    pub fn tag(tag: impl Into<String>) -> Self {
        Self { pid: None, tag: Some(tag.into()) }
    }
}

fn optional_u32<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<u32>, D::Error> {
    #[derive(Deserialize)]
    struct Number(#[serde(deserialize_with = "integer")] u32);
    Ok(Option::<Number>::deserialize(d)?.map(|number| number.0))
}

/// A request that only names a process: `Connect`, `CloseStdin`, and the first message of `StreamInput`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SelectRequest {
    /// Which one.
    #[serde(deserialize_with = "or_default")]
    pub process: ProcessSelector,
}

/// `Connect`.
pub type ConnectRequest = SelectRequest;

/// A running process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessInfo {
    /// What was asked to run.
    #[serde(deserialize_with = "or_default")]
    pub config: ProcessConfig,
    /// Its id inside the sandbox.
    #[serde(deserialize_with = "integer")]
    pub pid: u32,
    /// Its tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// Answer of `List`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListResponse {
    /// Every running process that was started through the protocol.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub processes: Vec<ProcessInfo>,
}

/// How a process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EndEvent {
    /// Its code; -1 after a signal; 137 where nobody could observe the outcome.
    #[serde(alias = "exit_code", deserialize_with = "integer", skip_serializing_if = "is_default")]
    pub exit_code: i32,
    /// Whether it exited by itself.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub exited: bool,
    /// `exit status N` or `signal: killed`, in Go's words.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub status: String,
    /// As `status`; absent on success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Sandbar's extension: number of the signal that ended it.
    #[serde(deserialize_with = "optional_u32", skip_serializing_if = "Option::is_none")]
    pub signal: Option<u32>,
    /// Sandbar's extension: why it ended, where the agent knows: a constant of [`causes`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// Values of [`EndEvent::cause`].
pub mod causes {
    /// The time limit of its `Start` passed.
    pub const TIMEOUT: &str = "timeout";
    /// Nobody could observe the outcome.
    pub const UNKNOWN: &str = "unknown";
}

/// An event of `Start` and `Connect`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "EventEnvelope", into = "EventEnvelope")]
pub enum ProcessEvent {
    /// Always the first: the process runs, with that id.
    Start {
        /// Process id inside the sandbox.
        pid: u32,
    },
    /// Some output.
    Data {
        /// Where it came from.
        channel: Channel,
        /// The bytes; a chunk may end inside a character.
        bytes: Bytes,
    },
    /// Always the last.
    End(EndEvent),
    /// Nothing happened for a while.
    Keepalive,
    /// Nothing that this version knows.
    Unknown,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct EventEnvelope {
    #[serde(deserialize_with = "or_default")]
    event: EventForm,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct EventForm {
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<StartForm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<DataForm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<EndEvent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keepalive: Option<Empty>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct StartForm {
    #[serde(deserialize_with = "integer")]
    pid: u32,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct DataForm {
    #[serde(with = "base64_bytes", skip_serializing_if = "Option::is_none")]
    stdout: Option<Bytes>,
    #[serde(with = "base64_bytes", skip_serializing_if = "Option::is_none")]
    stderr: Option<Bytes>,
    #[serde(with = "base64_bytes", skip_serializing_if = "Option::is_none")]
    pty: Option<Bytes>,
}

impl From<EventEnvelope> for ProcessEvent {
    fn from(envelope: EventEnvelope) -> Self {
        match envelope.event {
            EventForm { start: Some(StartForm { pid }), .. } => Self::Start { pid },
            EventForm { data: Some(data), .. } => match data {
                DataForm { stdout: Some(bytes), .. } => Self::Data { channel: Channel::Stdout, bytes },
                DataForm { stderr: Some(bytes), .. } => Self::Data { channel: Channel::Stderr, bytes },
                DataForm { pty: Some(bytes), .. } => Self::Data { channel: Channel::Pty, bytes },
                _ => Self::Unknown,
            },
            EventForm { end: Some(end), .. } => Self::End(end),
            EventForm { keepalive: Some(_), .. } => Self::Keepalive,
            _ => Self::Unknown,
        }
    }
}

impl From<ProcessEvent> for EventEnvelope {
    fn from(event: ProcessEvent) -> Self {
        let mut form = EventForm::default();
        match event {
            ProcessEvent::Start { pid } => form.start = Some(StartForm { pid }),
            ProcessEvent::Data { channel, bytes } => {
                let data = form.data.insert(DataForm::default());
                match channel {
                    Channel::Stdout => data.stdout = Some(bytes),
                    Channel::Stderr => data.stderr = Some(bytes),
                    Channel::Pty => data.pty = Some(bytes),
                }
            }
            ProcessEvent::End(end) => form.end = Some(end),
            ProcessEvent::Keepalive => form.keepalive = Some(Empty {}),
            ProcessEvent::Unknown => {}
        }
        Self { event: form }
    }
}

/// Bytes for a process: exactly one of the two is set in a valid message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessInput {
    /// For the standard input of a process without a terminal.
    #[serde(with = "base64_bytes", skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Bytes>,
    /// For a terminal.
    #[serde(with = "base64_bytes", skip_serializing_if = "Option::is_none")]
    pub pty: Option<Bytes>,
}

/// `SendInput`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SendInputRequest {
    /// To which process.
    #[serde(deserialize_with = "or_default")]
    pub process: ProcessSelector,
    /// What.
    #[serde(deserialize_with = "or_default")]
    pub input: ProcessInput,
}

/// A message of `StreamInput`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StreamForm", into = "StreamForm")]
pub enum StreamInput {
    /// Must be the first.
    Start(SelectRequest),
    /// Bytes.
    Data(ProcessInput),
    /// Nothing happened for a while.
    Keepalive,
    /// Nothing that this version knows.
    Unknown,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct StreamForm {
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<SelectRequest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<StreamData>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keepalive: Option<Empty>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct StreamData {
    #[serde(deserialize_with = "or_default")]
    input: ProcessInput,
}

impl From<StreamForm> for StreamInput {
    fn from(form: StreamForm) -> Self {
        match form {
            StreamForm { start: Some(start), .. } => Self::Start(start),
            StreamForm { data: Some(data), .. } => Self::Data(data.input),
            StreamForm { keepalive: Some(_), .. } => Self::Keepalive,
            _ => Self::Unknown,
        }
    }
}

impl From<StreamInput> for StreamForm {
    fn from(message: StreamInput) -> Self {
        let mut form = Self::default();
        match message {
            StreamInput::Start(start) => form.start = Some(start),
            StreamInput::Data(input) => form.data = Some(StreamData { input }),
            StreamInput::Keepalive => form.keepalive = Some(Empty {}),
            StreamInput::Unknown => {}
        }
        form
    }
}

/// `SendSignal`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SendSignalRequest {
    /// To which process.
    #[serde(deserialize_with = "or_default")]
    pub process: ProcessSelector,
    /// Which signal.
    pub signal: Signal,
}

/// `Update`: resizes a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateRequest {
    /// Of which process.
    #[serde(deserialize_with = "or_default")]
    pub process: ProcessSelector,
    /// The new size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pty: Option<Pty>,
}

#[cfg(test)]
mod tests;
