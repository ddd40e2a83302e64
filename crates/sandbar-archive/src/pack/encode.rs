use tar::{EntryType, Header};

use crate::read::{BLOCK, Kind, Member, padding};

/// Highest number of an owner that fits into a header's octal digits.
const MAX_OCTAL_ID: u64 = 0o7_777_777;
/// Bytes of a name that fit into a header.
const NAME: usize = 100;

/// Appends a member's headers.
pub(crate) fn encode(member: &Member, into: &mut Vec<u8>) {
    let (kind, link, size): (EntryType, &[u8], u64) = match &member.kind {
        Kind::File(size) => (EntryType::Regular, b"", *size),
        Kind::Folder => (EntryType::Directory, b"", 0),
        Kind::Symlink(target) => (EntryType::Symlink, target, 0),
        Kind::HardLink(target) => (EntryType::Link, target, 0),
        Kind::Device => (EntryType::Char, b"", 0),
        Kind::Fifo => (EntryType::Fifo, b"", 0),
    };
    let mut records = Vec::new();
    if member.path.len() > NAME {
        record(b"path", &member.path, &mut records);
    }
    if link.len() > NAME {
        record(b"linkpath", link, &mut records);
    }
    for (key, id) in [(&b"uid"[..], member.uid), (b"gid", member.gid)] {
        if id > MAX_OCTAL_ID {
            record(key, id.to_string().as_bytes(), &mut records);
        }
    }
    if member.mtime.1 != 0 || member.mtime.0 < 0 {
        record(b"mtime", time(member.mtime).as_bytes(), &mut records);
    }
    for (name, value) in &member.xattrs {
        record(&[b"SCHILY.xattr.", &**name].concat(), value, &mut records);
    }
    if !records.is_empty() {
        // It has the member's own name, as far as it fits: what shows the raw archive shows something useful.
        header(member, EntryType::XHeader, b"", records.len() as u64, into);
        let end = records.len() as u64;
        into.append(&mut records);
        into.resize(into.len() + padding(end), 0);
    }
    header(member, kind, link, size, into);
}

fn header(member: &Member, kind: EntryType, link: &[u8], size: u64, into: &mut Vec<u8>) {
    let mut header = Header::new_ustar();
    put(&mut header.as_old_mut().name, &member.path);
    put(&mut header.as_old_mut().linkname, link);
    header.set_mode(member.mode & 0o7777);
    header.set_uid(if member.uid > MAX_OCTAL_ID { 0 } else { member.uid });
    header.set_gid(if member.gid > MAX_OCTAL_ID { 0 } else { member.gid });
    header.set_size(size);
    header.set_mtime(u64::try_from(member.mtime.0).unwrap_or(0));
    header.set_entry_type(kind);
    header.set_cksum();
    into.extend_from_slice(&header.as_bytes()[..BLOCK]);
}

fn put(field: &mut [u8; NAME], text: &[u8]) {
    let length = field.len().min(text.len());
    field[..length].copy_from_slice(&text[..length]);
}

/// `LENGTH KEY=VALUE\n`, where the length counts its own digits too.
fn record(key: &[u8], value: &[u8], into: &mut Vec<u8>) {
    let rest = key.len() + value.len() + 3;
    let mut digits = 1;
    while (rest + digits).to_string().len() > digits {
        digits += 1;
    }
    into.extend_from_slice(format!("{} ", rest + digits).as_bytes());
    into.extend_from_slice(key);
    into.push(b'=');
    into.extend_from_slice(value);
    into.push(b'\n');
}

fn time((seconds, nanoseconds): (i64, u32)) -> String {
    let (sign, seconds, nanoseconds) = match (seconds < 0, nanoseconds) {
        (false, _) => ("", seconds.unsigned_abs(), nanoseconds),
        (true, 0) => ("-", seconds.unsigned_abs(), 0),
        (true, _) => ("-", seconds.unsigned_abs() - 1, 1_000_000_000 - nanoseconds),
    };
    format!("{sign}{seconds}.{nanoseconds:09}")
}
