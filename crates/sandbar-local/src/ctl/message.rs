use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::inside::Received;

/// Longest reason of the agent's that is shown, in characters.
pub(super) const MAX_REASON: usize = 200;

/// What the agent can be asked.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum Op {
    /// A connection to a port.
    Dial { port: u16 },
    /// Another deadline, in Unix milliseconds.
    Deadline { unix_ms: Option<i64> },
    /// Its listeners.
    Listeners,
    /// The sockets of the sandbox's network.
    Network,
    /// To let what goes on come to its end, and nothing begin.
    Quiet,
    /// To go on after that.
    Go,
    /// A signal to every process but the agent.
    KillAll { signal: i32 },
    /// How the main command is and what it said from byte `from` on, once there is anything that was not `seen`.
    Main { from: u64, seen: u64, wait_ms: u64 },
    /// The end of everything.
    Shutdown,
}

impl Op {
    /// Whether descriptors belong to the answer.
    pub(super) fn takes_descriptors(&self) -> bool {
        matches!(self, Self::Dial { .. } | Self::Listeners | Self::Network)
    }
}

#[derive(Serialize)]
struct Request<'a> {
    v: u32,
    #[serde(flatten)]
    op: &'a Op,
}

#[derive(Deserialize)]
struct Answer {
    ok: bool,
    #[serde(default)]
    error: Option<String>,
}

/// What came of a question.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It was done; these came with it.
    Done(Received),
    /// The agent says no.
    No(String),
}

/// Why there was no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nobody listens: the agent is gone.
    Gone,
    /// Anything else.
    Other(std::io::Error),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gone => f.write_str("the agent does not listen any more"),
            Self::Other(cause) => cause.fmt(f),
        }
    }
}

impl From<Errno> for Failure {
    fn from(cause: Errno) -> Self {
        match cause {
            Errno::CONNREFUSED | Errno::NOENT | Errno::CONNRESET | Errno::PIPE => Self::Gone,
            _ => Self::Other(cause.into()),
        }
    }
}

/// A question as it is sent.
pub(super) fn packet(op: &Op) -> Vec<u8> {
    serde_json::to_vec(&Request { v: 1, op }).unwrap_or_default()
}

/// An answer to `op`.
pub(super) fn read(op: &Op, bytes: &[u8], received: Received) -> Result<Outcome, Failure> {
    let broken = |why: &str| Failure::Other(std::io::Error::other(why.to_owned()));
    let answer: Answer =
        serde_json::from_slice(bytes).map_err(|_| broken("the agent's answer is not of the protocol"))?;
    if received.len() > 0 && !(answer.ok && op.takes_descriptors()) {
        return Err(broken("the agent gives descriptors that nobody asked for"));
    }
    if answer.ok {
        Ok(Outcome::Done(received))
    } else {
        let why = answer.error.unwrap_or_default();
        Ok(Outcome::No(why.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect()))
    }
}

/// Whatever the agent says is an outcome or an error, and short enough and plain enough to be shown.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn check_answer(data: &[u8]) {
    for op in [Op::Dial { port: 80 }, Op::KillAll { signal: 9 }] {
        match read(&op, data, Received::default()) {
            Ok(Outcome::Done(received)) => assert_eq!(received.len(), 0),
            Ok(Outcome::No(why)) => {
                assert!(why.chars().count() <= MAX_REASON && !why.chars().any(char::is_control), "{why:?}");
            }
            Err(failure) => assert!(!failure.to_string().is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_not_of_the_protocol_is_an_error() {
        let dial = Op::Dial { port: 80 };
        let read = |bytes: &[u8]| read(&dial, bytes, Received::default());
        assert!(matches!(read(b"{}"), Err(Failure::Other(_))));
        assert!(matches!(read(br#"{"ok":true}"#), Ok(Outcome::Done(_))));
        match read(b"{\"ok\":false,\"error\":\"refused\"}") {
            Ok(Outcome::No(why)) => assert_eq!(why, "refused"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn descriptors_come_only_where_they_were_asked_for() {
        let given = || Received::from(vec![std::fs::File::open("/dev/null").unwrap().into()]);
        let kill = Op::KillAll { signal: 9 };
        assert!(matches!(read(&kill, br#"{"ok":true}"#, given()), Err(Failure::Other(_))));
        assert!(matches!(read(&Op::Listeners, br#"{"ok":false}"#, given()), Err(Failure::Other(_))));
        assert!(matches!(read(&Op::Listeners, br#"{"ok":true}"#, given()), Ok(Outcome::Done(_))));
    }

    #[test]
    fn questions_have_the_form_of_the_decision() {
        assert_eq!(packet(&Op::Dial { port: 80 }), br#"{"v":1,"op":"dial","port":80}"#);
        assert_eq!(packet(&Op::Network), br#"{"v":1,"op":"network"}"#);
        assert_eq!(packet(&Op::KillAll { signal: 9 }), br#"{"v":1,"op":"kill_all","signal":9}"#);
    }
}
