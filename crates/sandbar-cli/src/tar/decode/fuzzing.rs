use super::*;
use crate::tar::{END, encode};

/// Members and their contents as far as they came, and how it ended.
type Outcome = (Vec<(Member, Vec<u8>)>, Result<(), TarError>);

/// The members are the same in whatever pieces the archive comes, what is held is bounded, and what was read can be written.
pub(crate) fn archive(data: &[u8]) {
    for bytes in [data, &repaired(data)] {
        let whole = read(bytes.chunks(bytes.len().max(1)));
        let step = 1 + bytes.len() / 300;
        assert_eq!(read(bytes.chunks(step)), whole, "in pieces of {step}");
        let content: usize = whole.0.iter().map(|(_, content)| content.len()).sum();
        assert!(content <= bytes.len());
        if whole.1.is_ok() {
            written(&whole.0);
        }
    }
}

fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Outcome {
    let mut decoder = Decoder::default();
    let mut found: Vec<(Member, Vec<u8>)> = Vec::new();
    for piece in pieces {
        decoder.push(bytes::Bytes::copy_from_slice(piece));
        loop {
            match decoder.next() {
                Ok(Some(Item::Member(member))) => found.push((member, Vec::new())),
                Ok(Some(Item::Data(data))) => {
                    let (member, content) = found.last_mut().expect("content comes after its member");
                    content.extend_from_slice(&data);
                    assert!(matches!(member.kind, Kind::File(size) if content.len() as u64 <= size));
                }
                Ok(None) => break,
                Err(error) => return (found, Err(error)),
            }
        }
        assert!(decoder.buffer.len() as u64 <= MAX_META);
    }
    let end = decoder.finish();
    (found, end)
}

fn written(members: &[(Member, Vec<u8>)]) {
    let mut bytes = Vec::new();
    for (member, content) in members {
        let names = match &member.kind {
            Kind::Symlink(target) | Kind::HardLink(target) => [&member.path, target],
            _ => [&member.path; 2],
        };
        // An extended header can hold a name that no file can have.
        if names.iter().any(|name| name.contains(&0) || name.len() as u64 >= MAX_META) {
            return;
        }
        encode(member, &mut bytes);
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len() + padding(content.len() as u64), 0);
    }
    bytes.extend_from_slice(&END);
    let (again, end) = read(std::iter::once(&*bytes));
    assert_eq!(end, Ok(()));
    assert_eq!(again, members);
}

/// The archive with right checksums: nobody finds one by chance, and a hostile sandbox has them right.
pub(crate) fn repaired(data: &[u8]) -> Vec<u8> {
    let mut decoder = Decoder::default();
    let mut bytes = Vec::with_capacity(data.len());
    let mut rest = data;
    while !rest.is_empty() {
        let (wanted, is_header) = match decoder.state {
            State::Header => (BLOCK as u64, true),
            State::Meta { size, .. } => (size, false),
            State::Data { left, .. } => (left, false),
            State::Skip(left) => (left as u64, false),
            State::End => (u64::MAX, false),
        };
        let length = usize::try_from(wanted).unwrap_or(usize::MAX).clamp(1, rest.len());
        let (piece, tail) = rest.split_at(length);
        let mut piece = piece.to_vec();
        if let Some(block) = piece.first_chunk_mut::<BLOCK>().filter(|block| is_header && block[0] != 0) {
            let sum = format!("{:06o}\0 ", checksum(block));
            block[CHECKSUM.0..CHECKSUM.0 + CHECKSUM.1].copy_from_slice(sum.as_bytes());
        }
        bytes.extend_from_slice(&piece);
        rest = tail;
        decoder.push(bytes::Bytes::copy_from_slice(&piece));
        while let Ok(Some(_)) = decoder.next() {}
    }
    bytes
}
