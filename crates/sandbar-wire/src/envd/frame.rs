use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use super::RpcError;

/// Bytes before each payload: one of flags, four of length, most significant first.
pub const HEADER_BYTES: usize = 5;
/// Flag of a compressed payload. Neither SDK sends one, and none is accepted.
pub const FLAG_COMPRESSED: u8 = 0x01;
/// Flag of the last frame of a stream.
pub const FLAG_END_STREAM: u8 = 0x02;
/// Largest message that the agent accepts. Large enough for any standard input that an SDK sends in one call, small
/// enough not to exhaust a sandbox. A client that reads from a sandbox should pass a smaller bound to its decoder.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// One frame of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Flags as received.
    pub flags: u8,
    /// A message, or an [`EndStream`] document where [`Frame::is_end`] holds.
    pub payload: Bytes,
}

impl Frame {
    /// Whether this is the stream's last frame.
    pub fn is_end(&self) -> bool {
        self.flags & FLAG_END_STREAM != 0
    }
}

/// Cuts a byte stream into frames, whatever the chunks it arrives in.
#[derive(Debug)]
pub struct FrameDecoder {
    buffer: BytesMut,
    max: usize,
}

impl FrameDecoder {
    /// A decoder that refuses payloads above `max` bytes before buffering them.
    pub fn new(max: usize) -> Self {
        Self { buffer: BytesMut::new(), max }
    }

    /// Adds received bytes.
    pub fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next whole frame, or `None` where more bytes are needed.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some((header, _)) = self.buffer.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [flags, length @ ..] = *header;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > self.max {
            return Err(FrameError::TooLarge { length, max: self.max });
        }
        if flags & FLAG_COMPRESSED != 0 {
            return Err(FrameError::Compressed);
        }
        if self.buffer.len() < HEADER_BYTES + length {
            self.buffer.reserve(HEADER_BYTES + length - self.buffer.len());
            return Ok(None);
        }
        let mut frame = self.buffer.split_to(HEADER_BYTES + length);
        Ok(Some(Frame { flags, payload: frame.split_off(HEADER_BYTES).freeze() }))
    }

    /// Says whether the stream may end here.
    pub fn finish(&self) -> Result<(), FrameError> {
        if self.buffer.is_empty() { Ok(()) } else { Err(FrameError::Truncated { left: self.buffer.len() }) }
    }
}

/// Why a byte stream is no sequence of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// A payload is longer than the decoder accepts; both in bytes.
    TooLarge {
        /// Announced length.
        length: usize,
        /// The decoder's bound.
        max: usize,
    },
    /// A payload is compressed, which was not negotiated.
    Compressed,
    /// The stream ended inside a frame, after that many bytes of it.
    Truncated {
        /// Bytes of the unfinished frame.
        left: usize,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { length, max } => {
                write!(f, "message of {length} bytes is above the limit of {max}")
            }
            Self::Compressed => f.write_str("message is compressed, which was not negotiated"),
            Self::Truncated { left } => write!(f, "stream ended inside a message, {left} bytes into it"),
        }
    }
}

impl std::error::Error for FrameError {}

/// Builds a frame in one buffer; `write` appends the payload.
pub(super) fn frame_with(flags: u8, capacity: usize, write: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut buffer = BytesMut::with_capacity(HEADER_BYTES + capacity);
    buffer.put_u8(flags);
    buffer.put_u32(0);
    write(&mut buffer);
    let length = u32::try_from(buffer.len() - HEADER_BYTES).unwrap_or(u32::MAX);
    buffer[1..HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
    buffer.freeze()
}

/// A frame with `message` as JSON. Messages of this crate always serialize.
pub fn message_frame<T: Serialize>(message: &T) -> Bytes {
    let payload = serde_json::to_vec(message).unwrap_or_default();
    frame_with(0, payload.len(), |buffer| buffer.put_slice(&payload))
}

/// The last frame of a stream: success, or `error`.
pub fn end_frame(error: Option<&RpcError>) -> Bytes {
    let payload = serde_json::to_vec(&EndStream { error: error.cloned() }).unwrap_or_default();
    frame_with(FLAG_END_STREAM, payload.len(), |buffer| buffer.put_slice(&payload))
}

/// Payload of a stream's last frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndStream {
    /// Absent on success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RpcError>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(chunks: &[&[u8]]) -> Result<Vec<Frame>, FrameError> {
        let mut decoder = FrameDecoder::new(1 << 16);
        let mut frames = Vec::new();
        for chunk in chunks {
            decoder.push(chunk);
            while let Some(frame) = decoder.next_frame()? {
                frames.push(frame);
            }
        }
        decoder.finish().map(|()| frames)
    }

    #[test]
    fn end_frames_match_the_samples() {
        assert_eq!(&end_frame(None)[..], b"\x02\0\0\0\x02{}");
        let error = RpcError::new(super::super::Code::NotFound, "process with pid 7 not found");
        let text = br#"{"error":{"code":"not_found","message":"process with pid 7 not found"}}"#;
        assert_eq!(&end_frame(Some(&error))[HEADER_BYTES..], text);
    }

    #[test]
    fn bounds_are_enforced_before_buffering() {
        let mut decoder = FrameDecoder::new(10);
        decoder.push(b"\0\xff\xff\xff\xff");
        assert_eq!(decoder.next_frame(), Err(FrameError::TooLarge { length: 0xffff_ffff, max: 10 }));
        let mut decoder = FrameDecoder::new(10);
        decoder.push(b"\x01\0\0\0\0");
        assert_eq!(decoder.next_frame(), Err(FrameError::Compressed));
        assert_eq!(decode(&[b"\0\0\0\0\x05abc"]), Err(FrameError::Truncated { left: 8 }));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_frames(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut stream = Vec::new();
            for payload in &payloads {
                stream.extend_from_slice(&frame_with(0, 0, |buffer| buffer.put_slice(payload)));
            }
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            at.extend([0, stream.len()]);
            at.sort_unstable();
            let chunks: Vec<&[u8]> = at.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
            let frames = decode(&chunks).unwrap();
            prop_assert_eq!(frames.iter().map(|frame| frame.payload.to_vec()).collect::<Vec<_>>(), payloads);
        }

        #[test]
        fn no_more_is_kept_than_one_frame_and_a_piece(
            bytes in prop::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 0..4000), step in 1..600_usize,
        ) {
            const MAX: usize = 1 << 10;
            let mut decoder = FrameDecoder::new(MAX);
            for piece in bytes.chunks(step) {
                decoder.push(piece);
                while let Ok(Some(frame)) = decoder.next_frame() {
                    prop_assert!(frame.payload.len() <= MAX);
                }
                if decoder.next_frame().is_err() {
                    break;
                }
                // `BytesMut` doubles where it grows.
                prop_assert!(decoder.buffer.capacity() <= 2 * (HEADER_BYTES + MAX + step));
            }
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&[&bytes]);
        }
    }
}
