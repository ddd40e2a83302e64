use std::time::Duration;

use bytes::Bytes;
use sandbar_wire::envd::{EndStream, Frame, FrameDecoder, RpcError};
use tokio::time::timeout;

use crate::body::ResponseBody;
use crate::transport::Failure;

/// How long a stream may go on after its last message, which ends it.
const LAST: Duration = Duration::from_secs(2);
/// Largest message of a stream, in bytes: output comes in pieces of at most 64 KiB, which base64 makes longer, and an agent that sends more is
/// not of the protocol.
const MAX_MESSAGE: usize = 4 << 20;

/// The messages of a stream.
#[derive(Debug)]
pub struct Messages {
    body: ResponseBody,
    decoder: FrameDecoder,
    ended: bool,
    silence: Option<Duration>,
}

/// What comes next in a stream.
#[derive(Debug)]
pub enum Next {
    /// A message.
    Message(Bytes),
    /// The proper end.
    End(Option<RpcError>),
    /// The connection broke.
    Lost(Failure),
    /// It ended without an end, or is not of the protocol.
    Nonsense(String),
}

impl Messages {
    /// Those of an answer's body.
    pub fn of(body: ResponseBody) -> Self {
        Self { body, decoder: FrameDecoder::new(MAX_MESSAGE), ended: false, silence: None }
    }

    /// As it is, but lost after a longer silence than that.
    pub(crate) fn never_silent_for(mut self, bound: Duration) -> Self {
        self.silence = Some(bound);
        self
    }

    /// The next message or the end. Given up, nothing of it is lost.
    pub async fn next(&mut self) -> Next {
        loop {
            match self.decoder.next_frame() {
                Ok(Some(frame)) if frame.is_end() => return self.end(&frame).await,
                Ok(Some(frame)) => return Next::Message(frame.payload),
                Ok(None) => {}
                Err(cause) => return Next::Nonsense(cause.to_string()),
            }
            if self.ended {
                return Next::Nonsense("the agent's stream ended without its last message".into());
            }
            let chunk = match self.silence {
                None => self.body.chunk().await,
                Some(bound) => match timeout(bound, self.body.chunk()).await {
                    Ok(chunk) => chunk,
                    Err(_) => return Next::Lost(Failure::Silent(bound)),
                },
            };
            match chunk {
                Some(Ok(bytes)) => self.decoder.push(&bytes),
                Some(Err(cause)) => return Next::Lost(Failure::Broken(cause)),
                None => self.ended = true,
            }
        }
    }

    /// Takes the last message, and reads the answer to its end so that its connection can be used again.
    async fn end(&mut self, frame: &Frame) -> Next {
        let rest = async { while let Some(Ok(_)) = self.body.chunk().await {} };
        if timeout(LAST, rest).await.is_err() {
            return Next::Nonsense("the agent's stream goes on after its last message".into());
        }
        match serde_json::from_slice::<EndStream>(&frame.payload) {
            Ok(end) => Next::End(end.error),
            Err(cause) => Next::Nonsense(cause.to_string()),
        }
    }
}
