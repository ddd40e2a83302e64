use std::ops::Range;

use fastrand::Rng;

/// Most changes of one seed.
const CHANGES: usize = 6;
/// Most bytes that one change adds.
const GROWTH: usize = 64;
/// Numbers at which parsers go wrong, as text.
const NUMBERS: [&[u8]; 8] =
    [b"0", b"-1", b"127", b"4294967296", b"9223372036854775807", b"18446744073709551615", b"1e999", b"+5"];
/// Bytes that mean something in many formats.
const MARKS: &[u8] = b"\0\n\r\t \"'\\/:;,=-+.%[]{}()<>&|$#~@*\x7f\x80\xff";

/// A seed, changed.
pub(crate) fn mutate(seeds: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    let mut bytes = seeds[random.usize(..seeds.len())].clone();
    for _ in 0..random.usize(1..=CHANGES) {
        change(&mut bytes, seeds, random);
    }
    bytes
}

fn change(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Rng) {
    let at = random.usize(..=bytes.len());
    match random.u8(..10) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.u8(..8),
        1 if at < bytes.len() => bytes[at] = random.u8(..),
        2 if at < bytes.len() => bytes[at] = MARKS[random.usize(..MARKS.len())],
        3 => bytes.insert(at, MARKS[random.usize(..MARKS.len())]),
        4 => drop(bytes.drain(piece(bytes, random))),
        5 => {
            let copy = bytes[piece(bytes, random)].to_vec();
            put(bytes, at, &copy);
        }
        6 => {
            let other = &seeds[random.usize(..seeds.len())];
            put(bytes, at, &other[piece(other, random)]);
        }
        7 => put(bytes, at, NUMBERS[random.usize(..NUMBERS.len())]),
        8 => bytes.truncate(at),
        _ => {
            let repeated = vec![*random.choice(MARKS).unwrap_or(&0); random.usize(..GROWTH)];
            put(bytes, at, &repeated);
        }
    }
}

/// Some of the bytes, most often a few.
fn piece(bytes: &[u8], random: &mut Rng) -> Range<usize> {
    let start = random.usize(..=bytes.len());
    let most = (bytes.len() - start).min(if random.bool() { 8 } else { GROWTH });
    start..start + random.usize(..=most)
}

fn put(bytes: &mut Vec<u8>, at: usize, what: &[u8]) {
    bytes.splice(at..at, what.iter().copied());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_the_same_each_time_and_small() {
        let seeds = [b"seed".to_vec(), Vec::new()];
        let all = |start| {
            let mut random = Rng::with_seed(start);
            (0..1000).map(|_| mutate(&seeds, &mut random)).collect::<Vec<_>>()
        };
        assert_eq!(all(7), all(7));
        assert_ne!(all(7), all(8));
        assert!(all(7).iter().all(|bytes| bytes.len() <= 4 + CHANGES * GROWTH));
    }
}
