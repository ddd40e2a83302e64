//! Archives by hand: what no honest program would write.
#![expect(dead_code, reason = "each test program uses some of it")]

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

use sandbar_archive::{ArchiveError, Pack, Rules, Unpack, UnpackReport};

pub(crate) const BLOCK: usize = 512;

/// One member as POSIX' ustar format has it, with any bytes for a name.
pub(crate) fn member(name: &[u8], kind: u8, mode: u32, link: &[u8], content: &[u8]) -> Vec<u8> {
    let mut header = vec![0; BLOCK];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, name);
    put(100, format!("{mode:07o}").as_bytes());
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{:011o}", content.len()).as_bytes());
    put(136, b"00000000000");
    put(157, link);
    put(257, b"ustar\x0000");
    header[156] = kind;
    sum(&mut header);
    header.extend_from_slice(content);
    header.resize(header.len().next_multiple_of(BLOCK), 0);
    header
}

/// Puts the right checksum in.
pub(crate) fn sum(header: &mut [u8]) {
    header[148..156].fill(b' ');
    let sum: u32 = header[..BLOCK].iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

pub(crate) fn file(name: &str, content: &[u8]) -> Vec<u8> {
    member(name.as_bytes(), b'0', 0o644, b"", content)
}

/// A header of POSIX with these records.
pub(crate) fn pax(records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let length = (1..20).find(|digits| (rest + digits).to_string().len() == *digits).unwrap() + rest;
        body.extend_from_slice(format!("{length} {key}=").as_bytes());
        body.extend_from_slice(value);
        body.push(b'\n');
    }
    member(b"pax", b'x', 0o644, b"", &body)
}

pub(crate) fn tar(members: &[Vec<u8>]) -> Vec<u8> {
    [members.concat(), vec![0; 2 * BLOCK]].concat()
}

pub(crate) fn unpack(rules: Rules, mut tar: &[u8], into: &Path) -> Result<UnpackReport, ArchiveError> {
    Unpack::new(rules).run(&mut tar, fs::File::open(into).unwrap().as_fd())
}

pub(crate) fn pack(tree: &Path, root: &str) -> Vec<u8> {
    let mut tar = Vec::new();
    Pack::new().run(fs::File::open(tree).unwrap().as_fd(), root.as_bytes(), &mut tar).unwrap();
    tar
}
