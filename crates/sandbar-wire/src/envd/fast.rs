use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use serde_json::Error;

use super::frame::frame_with;
use super::{ProcessEvent, ProcessInput, StreamInput};

/// Where output of a process comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A terminal.
    Pty,
}

const STDOUT: &[u8] = br#"{"event":{"data":{"stdout":""#;
const STDERR: &[u8] = br#"{"event":{"data":{"stderr":""#;
const PTY: &[u8] = br#"{"event":{"data":{"pty":""#;
const INPUT_STDIN: &[u8] = br#"{"data":{"input":{"stdin":""#;
const INPUT_PTY: &[u8] = br#"{"data":{"input":{"pty":""#;
const CLOSE: &[u8] = br#""}}}"#;

/// A frame of output, encoded without an intermediate copy.
pub fn data_frame(channel: Channel, data: &[u8]) -> Bytes {
    let prefix = match channel {
        Channel::Stdout => STDOUT,
        Channel::Stderr => STDERR,
        Channel::Pty => PTY,
    };
    base64_frame(prefix, data)
}

/// A frame of `StreamInput` with bytes for standard input, or for a terminal where the channel is [`Channel::Pty`].
pub fn input_frame(channel: Channel, data: &[u8]) -> Bytes {
    base64_frame(if channel == Channel::Pty { INPUT_PTY } else { INPUT_STDIN }, data)
}

fn base64_frame(prefix: &[u8], data: &[u8]) -> Bytes {
    let text = data.len().div_ceil(3) * 4;
    frame_with(0, prefix.len() + text + CLOSE.len(), |buffer: &mut BytesMut| {
        buffer.put_slice(prefix);
        let start = buffer.len();
        buffer.resize(start + text, 0);
        // The slice has the exact size, so that the only error there is can't happen.
        let written = STANDARD.encode_slice(data, &mut buffer[start..]).unwrap_or(0);
        buffer.truncate(start + written);
        buffer.put_slice(CLOSE);
    })
}

/// Decodes a message of `Start` or `Connect`; output in this crate's own form takes a short cut.
pub fn decode_process_event(payload: &[u8]) -> Result<ProcessEvent, Error> {
    for (prefix, channel) in [(STDOUT, Channel::Stdout), (STDERR, Channel::Stderr), (PTY, Channel::Pty)] {
        if let Some(bytes) = between(payload, prefix) {
            return Ok(ProcessEvent::Data { channel, bytes });
        }
    }
    serde_json::from_slice(payload)
}

/// Decodes a message of `StreamInput`; bytes in this crate's own form take a short cut.
pub fn decode_stream_input(payload: &[u8]) -> Result<StreamInput, Error> {
    if let Some(bytes) = between(payload, INPUT_STDIN) {
        return Ok(StreamInput::Data(ProcessInput { stdin: Some(bytes), pty: None }));
    }
    serde_json::from_slice(payload)
}

/// The decoded text between `prefix` and the closing; `None` sends the caller to the full parser.
fn between(payload: &[u8], prefix: &[u8]) -> Option<Bytes> {
    let text = payload.strip_prefix(prefix)?.strip_suffix(CLOSE)?;
    STANDARD.decode(text).ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{FrameDecoder, message_frame};
    use super::*;

    proptest! {
        #[test]
        fn short_cut_and_full_parser_agree(data in prop::collection::vec(any::<u8>(), 0..400), which in 0..3) {
            let channel = [Channel::Stdout, Channel::Stderr, Channel::Pty][usize::try_from(which).unwrap()];
            let fast = data_frame(channel, &data);
            let event = ProcessEvent::Data { channel, bytes: data.into() };
            prop_assert_eq!(&fast, &message_frame(&event));
            let mut decoder = FrameDecoder::new(4096);
            decoder.push(&fast);
            let frame = decoder.next_frame().unwrap().unwrap();
            prop_assert_eq!(decode_process_event(&frame.payload).unwrap(), event.clone());
            prop_assert_eq!(serde_json::from_slice::<ProcessEvent>(&frame.payload).unwrap(), event);
        }

        #[test]
        fn input_agrees_too(data in prop::collection::vec(any::<u8>(), 0..400)) {
            let frame = input_frame(Channel::Stdout, &data);
            let message = StreamInput::Data(ProcessInput { stdin: Some(data.into()), pty: None });
            prop_assert_eq!(&frame, &message_frame(&message));
            prop_assert_eq!(decode_stream_input(&frame[5..]).unwrap(), message);
        }

        #[test]
        fn garbage_never_panics(tail in prop::collection::vec(any::<u8>(), 0..60)) {
            let payload = [STDOUT, &tail].concat();
            let _ = decode_process_event(&payload);
            let _ = decode_stream_input(&tail);
        }
    }

    #[test]
    fn other_spellings_reach_the_full_parser() {
        let spaced = br#"{"event": {"data": {"stdout":"aGk="}}}"#;
        let event = ProcessEvent::Data { channel: Channel::Stdout, bytes: "hi".into() };
        assert_eq!(decode_process_event(spaced).unwrap(), event);
        let extra = br#"{"event":{"data":{"stdout":"aGk=","x":""}}}"#;
        assert_eq!(decode_process_event(extra).unwrap(), event);
    }
}
