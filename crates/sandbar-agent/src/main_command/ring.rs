use std::collections::VecDeque;

use bytes::Bytes;
use sandbar_wire::envd::Channel;

/// Bytes kept for a host side that is not there: enough for what a program says in trouble, little beside the agent itself.
const KEPT_BYTES: usize = 256 << 10;
/// What a piece costs beside its bytes: a program that writes single bytes must not fill memory with their surroundings.
const PIECE_COST: usize = 64;
/// Small pieces of one stream are put together up to this many bytes, and where they were said within [`TOGETHER_MS`]: who writes single bytes
/// makes as much work for those who read them otherwise as who writes a thousand times as much.
const TOGETHER_BYTES: usize = 4 << 10;
/// Within how many milliseconds pieces count as said at one time.
const TOGETHER_MS: u64 = 10;

/// The last of what the main command said.
#[derive(Debug, Default)]
pub(super) struct Ring {
    pieces: VecDeque<Piece>,
    cost: usize,
    next: u64,
}

/// Something it said.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// Number of its first byte, over all that was ever said.
    pub(super) offset: u64,
    /// When, in Unix milliseconds.
    pub(super) at_ms: u64,
    pub(super) channel: Channel,
    pub(super) bytes: Bytes,
}

impl Ring {
    /// Adds a piece; the oldest make room for it.
    pub(super) fn push(&mut self, at_ms: u64, channel: Channel, bytes: Bytes) {
        let offset = self.next;
        self.next += len(&bytes);
        if let Some(last) = self.pieces.back_mut()
            && last.takes(at_ms, channel, &bytes)
        {
            self.cost += bytes.len();
            last.bytes = [&last.bytes[..], &bytes[..]].concat().into();
            return self.make_room();
        }
        self.cost += bytes.len() + PIECE_COST;
        self.pieces.push_back(Piece { offset, at_ms, channel, bytes });
        self.make_room();
    }

    fn make_room(&mut self) {
        while self.cost > KEPT_BYTES
            && let Some(oldest) = self.pieces.pop_front()
        {
            self.cost -= oldest.bytes.len() + PIECE_COST;
        }
    }

    /// Number of the next byte.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Whether adding `bytes` drops something that a reader at `from` has not had.
    pub(super) fn would_drop(&self, from: u64, bytes: &Bytes) -> bool {
        let mut over = (self.cost + bytes.len() + PIECE_COST).saturating_sub(KEPT_BYTES);
        for piece in &self.pieces {
            if over == 0 {
                return false;
            }
            if piece.offset + len(&piece.bytes) > from {
                return true;
            }
            over = over.saturating_sub(piece.bytes.len() + PIECE_COST);
        }
        false
    }

    /// What is kept from byte `from` on; the first piece begins there or, where that is lost, later.
    pub(super) fn from(&self, from: u64) -> impl Iterator<Item = Piece> {
        let begin = self.pieces.partition_point(|piece| piece.offset + len(&piece.bytes) <= from);
        self.pieces.iter().skip(begin).map(move |piece| {
            let mut piece = piece.clone();
            let had = from.saturating_sub(piece.offset);
            piece.offset += had;
            piece.bytes = piece.bytes.slice(usize::try_from(had).unwrap_or(0)..);
            piece
        })
    }
}

impl Piece {
    /// Whether what comes next can be a part of it.
    fn takes(&self, at_ms: u64, channel: Channel, bytes: &Bytes) -> bool {
        self.channel == channel
            && self.bytes.len() + bytes.len() <= TOGETHER_BYTES
            && at_ms.checked_sub(self.at_ms).is_some_and(|between| between <= TOGETHER_MS)
    }
}

fn len(bytes: &Bytes) -> u64 {
    bytes.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(pieces: &[&'static [u8]]) -> Ring {
        let mut ring = Ring::default();
        for piece in pieces {
            ring.push(1, Channel::Stdout, Bytes::from_static(piece));
        }
        ring
    }

    #[test]
    fn a_reader_gets_the_rest_from_the_middle_of_a_piece() {
        let ring = ring(&[b"abc", b"def"]);
        let rest: Vec<_> = ring.from(4).map(|piece| (piece.offset, piece.bytes)).collect();
        assert_eq!(rest, [(4, Bytes::from_static(b"ef"))]);
        assert_eq!(ring.from(6).count(), 0);
        assert_eq!((ring.from(0).count(), ring.next()), (1, 6));
    }

    #[test]
    fn the_oldest_go_and_their_number_is_not_used_again() {
        static BIG: [u8; 100 << 10] = [7; 100 << 10];
        let mut ring = ring(&[&BIG, &BIG]);
        let more = Bytes::from_static(&BIG);
        assert!(ring.would_drop(0, &more) && ring.would_drop(len(&more) - 1, &more));
        assert!(!ring.would_drop(len(&more), &more), "the reader had the first");
        ring.push(2, Channel::Stderr, more);
        assert_eq!(ring.from(0).next().map(|piece| piece.offset), Some(100 << 10));
        assert_eq!(ring.next(), 300 << 10);
    }

    #[test]
    fn single_bytes_are_bounded_with_their_surroundings() {
        let mut ring = Ring::default();
        for at in 0..100_000 {
            // Far enough from each other to be pieces.
            ring.push(at * 100, Channel::Stdout, Bytes::from_static(b"x"));
        }
        assert!(ring.pieces.len() <= KEPT_BYTES / PIECE_COST, "{}", ring.pieces.len());
    }

    #[test]
    fn single_bytes_of_one_moment_are_put_together() {
        let mut ring = Ring::default();
        for _ in 0..10_000 {
            ring.push(1, Channel::Stdout, Bytes::from_static(b"x"));
        }
        assert_eq!(ring.from(0).count(), 3);
        assert_eq!(ring.from(0).map(|piece| piece.bytes.len()).sum::<usize>(), 10_000);
        assert_eq!(ring.cost, 10_000 + 3 * PIECE_COST);
        ring.push(1, Channel::Stderr, Bytes::from_static(b"y"));
        ring.push(12, Channel::Stderr, Bytes::from_static(b"y"));
        ring.push(11, Channel::Stderr, Bytes::from_static(b"y"));
        assert_eq!(ring.from(10_000).map(|piece| piece.offset).collect::<Vec<_>>(), [10_000, 10_001, 10_002]);
    }
}
