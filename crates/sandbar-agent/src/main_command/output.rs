use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body as _;
use sandbar_wire::envd::{EndEvent, FrameDecoder, MAX_MESSAGE_BYTES, ProcessEvent, decode_process_event};

use super::Main;
use crate::processes::{FrameBody, Pace, Queue};

/// Nobody here needs to hear that nothing happens.
const SILENCE: Duration = Duration::from_secs(24 * 3600);

/// The output of a started command, as its first reader has it.
pub(super) struct Output {
    body: FrameBody,
    decoder: FrameDecoder,
}

impl Output {
    pub(super) fn new(queue: Rc<Queue>) -> Self {
        let pace = Pace { keepalive: SILENCE, keepalive_frame: Bytes::new(), deadline: None };
        Self { body: FrameBody::new(queue, pace), decoder: FrameDecoder::new(MAX_MESSAGE_BYTES) }
    }

    /// The number of the process, which comes first.
    pub(super) async fn started(&mut self) -> Option<u32> {
        match self.next().await {
            Some(ProcessEvent::Start { pid }) => Some(pid),
            _ => None,
        }
    }

    /// Keeps what the command says until it has ended; `None` where nobody saw how.
    pub(super) async fn keep(mut self, main: &Main) -> Option<EndEvent> {
        while let Some(event) = self.next().await {
            match event {
                ProcessEvent::Data { channel, bytes } => main.say(channel, bytes).await,
                ProcessEvent::End(end) => return Some(end),
                ProcessEvent::Start { .. } | ProcessEvent::Keepalive | ProcessEvent::Unknown => {}
            }
        }
        None
    }

    async fn next(&mut self) -> Option<ProcessEvent> {
        loop {
            if let Ok(Some(frame)) = self.decoder.next_frame() {
                if frame.is_end() {
                    return None;
                }
                if let Ok(event) = decode_process_event(&frame.payload) {
                    return Some(event);
                }
                continue;
            }
            let frame = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await?.ok()?;
            if let Ok(bytes) = frame.into_data() {
                self.decoder.push(&bytes);
            }
        }
    }
}
