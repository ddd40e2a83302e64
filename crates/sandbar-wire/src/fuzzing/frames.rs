use crate::envd::{Frame, FrameDecoder, FrameError, HEADER_BYTES};

/// The decoder's bound: small, so that small inputs are above it.
const MAX: usize = 1 << 12;

/// Frames are the same however the bytes arrive, each is within the bound, and together they are what arrived.
pub fn frames(data: &[u8]) {
    let (whole, end) = decode(data.chunks(data.len().max(1)));
    // The first byte is the first frame's flags, and free.
    let step = 1 + data.first().map_or(0, |byte| usize::from(*byte >> 2));
    assert_eq!(decode(data.chunks(step)), (whole.clone(), end), "in pieces of {step}");
    let mut rest = data;
    for frame in &whole {
        assert!(frame.payload.len() <= MAX);
        let (head, tail) = rest.split_at(HEADER_BYTES + frame.payload.len());
        assert_eq!((head[0], &head[HEADER_BYTES..]), (frame.flags, &frame.payload[..]));
        rest = tail;
    }
    match end {
        Ok(()) => assert!(rest.is_empty()),
        Err(FrameError::Truncated { left }) => assert_eq!(left, rest.len()),
        Err(FrameError::TooLarge { length, max }) => assert!(length > max && max == MAX),
        Err(FrameError::Compressed) => assert_eq!(rest[0] & 1, 1),
    }
}

fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Frame>, Result<(), FrameError>) {
    let mut decoder = FrameDecoder::new(MAX);
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    let end = decoder.finish();
    (frames, end)
}
