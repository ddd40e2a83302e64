//! Cutting a stream into pieces, with their sum.

use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};

/// Largest piece that is ever sent, in bytes: the reference's own.
pub(super) const MOST: usize = 8 << 20;
/// Size of all pieces but the last, in bytes: three are held at once, one on its way, one waiting and one being filled.
pub(super) const PIECE: usize = 4 << 20;
const _: () = assert!(PIECE <= MOST);

/// Cuts what is written into it.
#[derive(Debug)]
pub(super) struct Cutter {
    piece: BytesMut,
    most: usize,
    size: u64,
    sum: Sha256,
}

/// What all pieces are together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Whole {
    /// Bytes.
    pub(super) size: u64,
    /// SHA-256 in hexadecimal.
    pub(super) sum: String,
}

impl Cutter {
    /// Into pieces of `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        Self { piece: BytesMut::new(), most: most.max(1), size: 0, sum: Sha256::new() }
    }

    /// Takes bytes, and answers the first piece that is full, and how many bytes were taken: the others are to be given again.
    pub(super) fn take(&mut self, bytes: &[u8]) -> (usize, Option<Bytes>) {
        let fits = (self.most - self.piece.len()).min(bytes.len());
        self.piece.extend_from_slice(&bytes[..fits]);
        self.sum.update(&bytes[..fits]);
        self.size += fits as u64;
        let full = self.piece.len() == self.most;
        (fits, full.then(|| std::mem::take(&mut self.piece).freeze()))
    }

    /// What is left, if anything is, and what all of them are.
    pub(super) fn finish(self) -> (Option<Bytes>, Whole) {
        use std::fmt::Write;
        let digest = self.sum.finalize();
        let sum = digest.iter().fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        ((!self.piece.is_empty()).then(|| self.piece.freeze()), Whole { size: self.size, sum })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(chunks: &[Vec<u8>], most: usize) -> (Vec<Bytes>, Whole) {
        let (mut cutter, mut pieces) = (Cutter::new(most), Vec::new());
        for chunk in chunks {
            let mut left = &chunk[..];
            while !left.is_empty() {
                let (taken, piece) = cutter.take(left);
                left = &left[taken..];
                pieces.extend(piece);
            }
        }
        let (last, whole) = cutter.finish();
        pieces.extend(last);
        (pieces, whole)
    }

    #[test]
    fn nothing_is_no_piece() {
        let (pieces, whole) = cut(&[Vec::new()], 10);
        assert!(pieces.is_empty());
        assert_eq!(whole.sum, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    proptest! {
        #[test]
        fn any_chunks_give_the_same_pieces(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20),
            most in 1_usize..100,
        ) {
            let (pieces, whole) = cut(&chunks, most);
            let bytes = chunks.concat();
            prop_assert_eq!(pieces.concat(), bytes.clone());
            prop_assert!(pieces.iter().rev().skip(1).all(|piece| piece.len() == most));
            prop_assert!(pieces.last().is_none_or(|piece| !piece.is_empty() && piece.len() <= most));
            let one = cut(&[bytes], most);
            prop_assert_eq!(one, (pieces, whole));
        }
    }
}
