use crate::tar::header::{BLOCK, CHECKSUM, GID, LINK, MAGIC, MODE, MTIME, NAME, SIZE, TYPE, UID, checksum};
use crate::tar::{Kind, Member};

/// What ends an archive.
pub(crate) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// How many zero bytes follow a content of `size` bytes.
pub(crate) fn padding(size: u64) -> usize {
    let block = BLOCK as u64;
    usize::try_from((block - size % block) % block).unwrap_or(0)
}

/// Appends a member's header. Long names are in GNU's form, which takes any bytes and which GNU tar, busybox and bsdtar read.
pub(crate) fn encode(member: &Member, into: &mut Vec<u8>) {
    let (flag, link, size): (u8, &[u8], u64) = match &member.kind {
        Kind::File(size) => (b'0', b"", *size),
        Kind::HardLink(target) => (b'1', target, 0),
        Kind::Symlink(target) => (b'2', target, 0),
        Kind::Directory => (b'5', b"", 0),
        Kind::Other(flag) => (*flag, b"", 0),
    };
    if link.len() > LINK.1 {
        long_name(b'K', link, into);
    }
    if member.path.len() > NAME.1 {
        long_name(b'L', &member.path, into);
    }
    header(flag, &member.path, link, size, member.mode, member.mtime, into);
}

fn long_name(flag: u8, name: &[u8], into: &mut Vec<u8>) {
    let size = name.len() as u64 + 1;
    header(flag, b"././@LongLink", b"", size, 0, 0, into);
    into.extend_from_slice(name);
    into.push(0);
    into.resize(into.len() + padding(size), 0);
}

fn header(flag: u8, path: &[u8], link: &[u8], size: u64, mode: u32, mtime: i64, into: &mut Vec<u8>) {
    let mut block = [0; BLOCK];
    put_text(&mut block, NAME, path);
    put_number(&mut block, MODE, u64::from(mode & 0o7777));
    put_number(&mut block, UID, 0);
    put_number(&mut block, GID, 0);
    put_number(&mut block, SIZE, size);
    put_number(&mut block, MTIME, u64::try_from(mtime).unwrap_or(0));
    block[TYPE] = flag;
    put_text(&mut block, LINK, link);
    put_text(&mut block, MAGIC, b"ustar  \0");
    let sum = format!("{:06o}\0 ", checksum(&block));
    put_text(&mut block, CHECKSUM, sum.as_bytes());
    into.extend_from_slice(&block);
}

fn put_text(block: &mut [u8; BLOCK], (offset, length): (usize, usize), text: &[u8]) {
    let length = length.min(text.len());
    block[offset..offset + length].copy_from_slice(&text[..length]);
}

/// Octal digits, or GNU's binary form where they do not fit.
fn put_number(block: &mut [u8; BLOCK], (offset, length): (usize, usize), number: u64) {
    let octal = format!("{number:0width$o}", width = length - 1);
    if octal.len() < length {
        block[offset..offset + length - 1].copy_from_slice(octal.as_bytes());
    } else {
        block[offset] = 0x80;
        block[offset + length - 8..offset + length].copy_from_slice(&number.to_be_bytes());
    }
}
