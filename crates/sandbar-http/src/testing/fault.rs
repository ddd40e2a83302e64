use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::Answer;

/// What happens to a request.
#[derive(Clone)]
pub enum Fault {
    /// The server never sees it, and this is the answer.
    Answer(Answer),
    /// The server does it, and this is the answer.
    AnswerAfter(Answer),
    /// The server never sees it, and the connection is reset.
    Refuse,
    /// The server does it, and the connection is reset before a byte of the answer.
    Lose,
    /// The server never sees it, and nothing comes until it is released; then it is passed on.
    Stall,
    /// The server does it, and nothing of the answer comes until it is released.
    StallAfter,
    /// The connection is reset in both directions when so many bytes of the request's body were passed on.
    ResetRequest(u64),
    /// Something happens within the body of the answer.
    Body(Where, Then),
    /// The body of the answer comes in pieces of so many bytes.
    Split(usize),
    /// As [`Fault::Split`], with a pause before each piece.
    Drip(usize, Duration),
    /// The answer is another one, made from the server's own.
    Rewrite(Arc<dyn Fn(Answer) -> Answer + Send + Sync>),
}

/// Where in the body of an answer.
#[derive(Clone, Debug)]
pub enum Where {
    /// After so many bytes; 0 is right after the head. In a shorter body it does not happen.
    Byte(u64),
    /// Before these bytes.
    Before(Bytes),
    /// After the last byte, before the client is told that it was the last.
    End,
}

/// What happens there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The connection is reset.
    Reset,
    /// The connection is closed, without an end of the body.
    Close,
    /// The body ends as if this were all of it.
    End,
    /// Nothing more comes until it is released; then the rest does.
    Stall,
}

impl Fault {
    /// The server's answer, changed.
    pub fn rewrite(change: impl Fn(Answer) -> Answer + Send + Sync + 'static) -> Self {
        Self::Rewrite(Arc::new(change))
    }

    /// The first answer, again and again: a page that comes twice.
    pub fn repeat() -> Self {
        let first = Mutex::new(None);
        Self::rewrite(move |answer| {
            first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(answer).clone()
        })
    }

    /// [`Fault::Answer`] with an error as JSON, such as `{"code":409,"message":"…"}`.
    pub fn status(status: u16, message: &str) -> Self {
        Self::Answer(Answer::json(status, &serde_json::json!({ "code": status, "message": message })))
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer(answer) => write!(f, "Answer({})", answer.status),
            Self::AnswerAfter(answer) => write!(f, "AnswerAfter({})", answer.status),
            Self::Refuse => f.write_str("Refuse"),
            Self::Lose => f.write_str("Lose"),
            Self::Stall => f.write_str("Stall"),
            Self::StallAfter => f.write_str("StallAfter"),
            Self::ResetRequest(bytes) => write!(f, "ResetRequest({bytes})"),
            Self::Body(place, then) => write!(f, "Body({place:?}, {then:?})"),
            Self::Split(piece) => write!(f, "Split({piece})"),
            Self::Drip(piece, pause) => write!(f, "Drip({piece}, {pause:?})"),
            Self::Rewrite(_) => f.write_str("Rewrite"),
        }
    }
}
