use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use sandbar_core::{ExitStatus, LogStream};
use sandbar_wire::envd::RpcError;
use serde::Deserialize;

use super::message::Failure;

/// What the agent says of the main command. All of it is hostile: sizes are those of a packet, numbers may be any.
#[derive(Debug, Deserialize)]
pub(crate) struct MainAnswer {
    /// Rises with each change of the state.
    pub(crate) version: u64,
    pub(crate) state: Phase,
    pub(crate) pid: Option<u32>,
    pub(crate) started_ms: Option<u64>,
    #[serde(default)]
    pub(crate) restarts: u64,
    pub(crate) exit: Option<ExitStatus>,
    pub(crate) next_ms: Option<u64>,
    pub(crate) problem: Option<String>,
    /// Why the first start did not come off.
    pub(crate) start_error: Option<RpcError>,
    #[serde(default)]
    pub(crate) pieces: Vec<Piece>,
    /// Whether there is more that did not fit.
    #[serde(default)]
    pub(crate) more: bool,
    /// Number of the next byte that will be said.
    #[serde(default)]
    pub(crate) next: u64,
}

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    Starting,
    Failed,
    Running,
    BackingOff,
    Exited,
}

/// Something that it said.
#[derive(Debug, Deserialize)]
pub(crate) struct Piece {
    /// Number of its first byte.
    #[serde(rename = "o")]
    pub(crate) offset: u64,
    /// When, in Unix milliseconds.
    #[serde(rename = "t")]
    pub(crate) at_ms: u64,
    #[serde(rename = "s")]
    pub(crate) stream: LogStream,
    #[serde(rename = "d")]
    data: String,
}

impl Piece {
    /// How long its bytes are as they came.
    pub(crate) fn encoded_len(&self) -> u64 {
        self.data.len() as u64
    }

    /// Its bytes; `None` where they are not what the protocol says.
    pub(crate) fn bytes(&self) -> Option<Bytes> {
        STANDARD.decode(&self.data).ok().map(Bytes::from)
    }
}

/// An answer about the main command. The inner error is the agent's own word.
pub(super) fn read(bytes: &[u8]) -> Result<Result<MainAnswer, String>, Failure> {
    #[derive(Deserialize)]
    struct Head {
        ok: bool,
        #[serde(default)]
        error: String,
    }
    let broken = |_| Failure::Other(std::io::Error::other("the agent's answer is not of the protocol"));
    let head: Head = serde_json::from_slice(bytes).map_err(broken)?;
    if !head.ok {
        return Ok(Err(head
            .error
            .chars()
            .filter(|c| !c.is_control())
            .take(super::message::MAX_REASON)
            .collect()));
    }
    serde_json::from_slice(bytes).map(Ok).map_err(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_apart_or_refused() {
        let text = br#"{"ok":true,"version":3,"state":"backing_off","pid":null,"started_ms":1,"restarts":2,
            "exit":{"code":1},"next_ms":5,"problem":null,"start_error":null,"later":1,"next":2,
            "pieces":[{"o":0,"t":1,"s":"stderr","d":"aGk="}],"more":false}"#;
        let answer = read(text).unwrap().unwrap();
        assert_eq!((answer.state, answer.exit), (Phase::BackingOff, Some(ExitStatus::Code(1))));
        assert_eq!(answer.pieces[0].bytes().as_deref(), Some(&b"hi"[..]));
        assert_eq!(read(br#"{"ok":false,"error":"no\u001bne"}"#).unwrap().unwrap_err(), "none");
        for nonsense in
            [&b"{}"[..], br#"{"ok":true}"#, br#"{"ok":true,"version":-1,"state":"running"}"#, b"\xff"]
        {
            assert!(read(nonsense).is_err());
        }
        assert!(
            serde_json::from_str::<Piece>(r#"{"o":0,"t":1,"s":"stdout","d":"*"}"#).unwrap().bytes().is_none()
        );
    }
}
