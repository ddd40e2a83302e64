use tar::{EntryType, Header};

use crate::ArchiveError;

/// Headers and padding come in blocks of this many bytes (POSIX.1-2017, pax).
pub(crate) const BLOCK: usize = 512;

/// One member as the archive has it: anything may be in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) path: Vec<u8>,
    pub(crate) kind: Kind,
    /// Permission and privilege bits.
    pub(crate) mode: u32,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    /// Seconds since 1970, and nanoseconds after those.
    pub(crate) mtime: (i64, u32),
    /// Extended attributes by name.
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file of this many bytes.
    File(u64),
    Folder,
    /// A symbolic link and where it leads.
    Symlink(Vec<u8>),
    /// Another name of a member that came before.
    HardLink(Vec<u8>),
    Device,
    Fifo,
}

/// How many bytes follow a content of `size` bytes up to the next block.
pub(crate) fn padding(size: u64) -> usize {
    let block = BLOCK as u64;
    usize::try_from((block - size % block) % block).unwrap_or(0)
}

/// Checks that the block is a header at all.
pub(crate) fn check_sum(header: &Header) -> Result<(), ArchiveError> {
    let field = 148..156;
    let sum: u64 = header
        .as_bytes()
        .iter()
        .enumerate()
        .map(|(index, byte)| if field.contains(&index) { u64::from(b' ') } else { u64::from(*byte) })
        .sum();
    if natural(&header.as_old().cksum, "checksum").is_ok_and(|told| told == sum) {
        return Ok(());
    }
    Err(ArchiveError::malformed("a header's checksum is wrong: it is not a tar archive, or a damaged one"))
}

/// What the header itself says of the member.
pub(crate) fn plain(header: &Header) -> Result<(Member, u64), ArchiveError> {
    let old = header.as_old();
    let path = header.path_bytes().into_owned();
    let of = |error: ArchiveError| error.of(&path);
    let link = || header.link_name_bytes().unwrap_or_default().into_owned();
    let size = natural(&old.size, "size").map_err(of)?;
    let kind = match header.entry_type() {
        // Before POSIX, a folder was a file whose name ends with a slash.
        EntryType::Regular if path.ends_with(b"/") && old.linkflag[0] == 0 => Kind::Folder,
        EntryType::Regular | EntryType::Continuous => Kind::File(size),
        EntryType::Directory => Kind::Folder,
        EntryType::Symlink => Kind::Symlink(link()),
        EntryType::Link => Kind::HardLink(link()),
        EntryType::Char | EntryType::Block => Kind::Device,
        EntryType::Fifo => Kind::Fifo,
        EntryType::GNUSparse => {
            let text = "it is sparse in GNU tar's own form, which is not read: pack it without `--sparse`";
            return Err(of(ArchiveError::refused(text)));
        }
        other => {
            let text = format!("type `{}` is not read", other.as_byte().escape_ascii());
            return Err(of(ArchiveError::refused(text)));
        }
    };
    let member = Member {
        kind,
        mode: u32::try_from(natural(&old.mode, "mode").map_err(of)? & 0o7777).unwrap_or(0),
        uid: natural(&old.uid, "owner").map_err(of)?,
        gid: natural(&old.gid, "group").map_err(of)?,
        mtime: (number(&old.mtime, "time").map_err(of)?, 0),
        xattrs: Vec::new(),
        path,
    };
    Ok((member, size))
}

/// A number that can't be negative.
pub(crate) fn natural(field: &[u8], what: &str) -> Result<u64, ArchiveError> {
    u64::try_from(number(field, what)?).map_err(|_| wrong(what))
}

/// Octal digits among blanks, or GNU's binary form: base 256 after a mark, two's complement.
fn number(field: &[u8], what: &str) -> Result<i64, ArchiveError> {
    let first = field.first().copied().unwrap_or(0);
    if first & 0x80 != 0 {
        // The mark is the first bit, and the next one is the sign.
        let start = if first & 0x40 != 0 { i128::from(first) - 256 } else { i128::from(first & 0x3f) };
        let number = field[1..].iter().try_fold(start, |number, byte| {
            i64::try_from(number * 256 + i128::from(*byte)).ok().map(i128::from)
        });
        return number.and_then(|number| i64::try_from(number).ok()).ok_or_else(|| wrong(what));
    }
    let digits = field.split(|byte| *byte == 0).next().unwrap_or_default().trim_ascii();
    if digits.is_empty() {
        return Ok(0);
    }
    if !digits.iter().all(|digit| matches!(digit, b'0'..=b'7')) {
        return Err(wrong(what));
    }
    std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| i64::from_str_radix(digits, 8).ok())
        .ok_or_else(|| wrong(what))
}

fn wrong(what: &str) -> ArchiveError {
    ArchiveError::malformed(format!("the {what} in a header is not a number that it can be"))
}
