use std::collections::VecDeque;

use bytes::Bytes;
use sandbar_wire::envd::Channel;

/// Bytes kept for a host side that is not there: enough for what a program says in trouble, little beside the agent itself.
const KEPT_BYTES: usize = 256 << 10;
/// What a piece costs beside its bytes: a program that writes single bytes must not fill memory with their surroundings.
const PIECE_COST: usize = 64;

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
        self.cost += bytes.len() + PIECE_COST;
        self.pieces.push_back(Piece { offset, at_ms, channel, bytes });
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
        assert_eq!((ring.from(0).count(), ring.next()), (2, 6));
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
        for _ in 0..100_000 {
            ring.push(1, Channel::Stdout, Bytes::from_static(b"x"));
        }
        assert!(ring.pieces.len() <= KEPT_BYTES / PIECE_COST, "{}", ring.pieces.len());
    }
}
