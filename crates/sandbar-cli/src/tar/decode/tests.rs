use proptest::prelude::*;

use super::*;
use crate::tar::{END, encode};

fn member(path: impl Into<Vec<u8>>, kind: Kind) -> Member {
    Member { path: path.into(), mode: 0o644, mtime: 1_700_000_000, kind }
}

fn archive(members: &[(Member, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (member, content) in members {
        encode(member, &mut bytes);
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len() + padding(content.len() as u64), 0);
    }
    bytes.extend_from_slice(&END);
    bytes
}

fn decode(pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<Vec<(Member, Vec<u8>)>, TarError> {
    let mut decoder = Decoder::default();
    let mut found: Vec<(Member, Vec<u8>)> = Vec::new();
    for piece in pieces {
        decoder.push(Bytes::copy_from_slice(piece.as_ref()));
        while let Some(item) = decoder.next()? {
            match item {
                Item::Member(member) => found.push((member, Vec::new())),
                Item::Data(data) => {
                    found.last_mut().expect("data follows a member").1.extend_from_slice(&data);
                }
            }
        }
    }
    decoder.finish()?;
    Ok(found)
}

fn raw(flag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&member("x", Kind::Other(flag)), &mut bytes);
    let size = format!("{:011o}\0", body.len());
    bytes[SIZE.0..SIZE.0 + SIZE.1].copy_from_slice(size.as_bytes());
    let sum = checksum(bytes.first_chunk().unwrap());
    bytes[CHECKSUM.0..CHECKSUM.0 + 6].copy_from_slice(format!("{sum:06o}").as_bytes());
    bytes.extend_from_slice(body);
    bytes.resize(bytes.len() + padding(body.len() as u64), 0);
    bytes
}

#[test]
fn what_is_encoded_comes_back() {
    let members = [
        (member("data/", Kind::Directory), vec![]),
        (member(b"data/\xff\n -x".to_vec(), Kind::File(3)), b"abc".to_vec()),
        (member(vec![b'n'; 300], Kind::File(512)), vec![7; 512]),
        (member("l", Kind::Symlink(vec![b't'; 4000])), vec![]),
        (member("h", Kind::HardLink(b"data/a".to_vec())), vec![]),
        (member("empty", Kind::File(0)), vec![]),
    ];
    assert_eq!(decode([archive(&members)]).unwrap(), members);
}

#[test]
fn a_size_beyond_eight_gibibytes_is_kept() {
    let big = member("big", Kind::File(1 << 40));
    let mut bytes = Vec::new();
    encode(&big, &mut bytes);
    let mut decoder = Decoder::default();
    decoder.push(bytes.clone().into());
    assert_eq!(decoder.next(), Ok(Some(Item::Member(big))));
}

#[test]
fn posix_extended_headers_are_read() {
    let mut bytes = raw(b'x', b"18 path=long/name\n24 linkpath=some/target\n15 comment=a=b\n");
    bytes.extend(raw(b'2', b""));
    bytes.extend_from_slice(&END);
    let found = decode([bytes]).unwrap();
    assert_eq!(found[0].0.path, b"long/name");
    assert_eq!(found[0].0.kind, Kind::Symlink(b"some/target".to_vec()));
}

#[test]
fn hostile_archives_are_refused() {
    let good = archive(&[(member("a", Kind::File(3)), b"abc".to_vec())]);
    let mut flipped = good.clone();
    flipped[0] ^= 1;
    let mut huge = Vec::new();
    encode(&member("x", Kind::Other(b'L')), &mut huge);
    huge[SIZE.0..SIZE.0 + SIZE.1].copy_from_slice(b"77777777777\0");
    let sum = checksum(huge.first_chunk().unwrap());
    huge[CHECKSUM.0..CHECKSUM.0 + 6].copy_from_slice(format!("{sum:06o}").as_bytes());
    for (bytes, part) in [
        (flipped, "checksum"),
        (good[..600].to_vec(), "cut short"),
        (Vec::new(), "cut short"),
        (huge, "too long"),
        (raw(b'x', b"99 path=a\n"), "malformed"),
        (raw(b'x', b"1 p"), "malformed"),
        (raw(b'x', b"no record"), "malformed"),
        (raw(b'x', b"10 size=x\n"), "malformed"),
    ] {
        let error = decode([bytes]).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_an_archive_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let _ = decode([bytes]);
    }

    #[test]
    fn damage_never_panics(at in 0..2048_usize, byte: u8) {
        let mut bytes = archive(&[
            (member(vec![b'n'; 300], Kind::File(3)), b"abc".to_vec()),
            (member("l", Kind::Symlink(b"t".to_vec())), vec![]),
        ]);
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = decode([bytes]);
    }

    #[test]
    fn any_split_gives_the_same(cuts in proptest::collection::vec(0..3000_usize, 0..6), content in proptest::collection::vec(any::<u8>(), 0..1500)) {
        let members = [
            (member(vec![b'n'; 200], Kind::File(content.len() as u64)), content),
            (member("l", Kind::Symlink(b"t".to_vec())), vec![]),
        ];
        let bytes = archive(&members);
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut % bytes.len()).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
        prop_assert_eq!(decode(pieces).unwrap(), members);
    }
}
