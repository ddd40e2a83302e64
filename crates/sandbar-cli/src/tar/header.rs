use std::fmt;

/// Headers and padding come in blocks of this many bytes (POSIX.1-2017, pax).
pub(super) const BLOCK: usize = 512;

// Offsets and lengths of the fields of a header (POSIX.1-2017, pax, "ustar Interchange Format"; GNU tar shares them).
pub(super) const NAME: (usize, usize) = (0, 100);
pub(super) const MODE: (usize, usize) = (100, 8);
pub(super) const UID: (usize, usize) = (108, 8);
pub(super) const GID: (usize, usize) = (116, 8);
pub(super) const SIZE: (usize, usize) = (124, 12);
pub(super) const MTIME: (usize, usize) = (136, 12);
pub(super) const CHECKSUM: (usize, usize) = (148, 8);
pub(super) const TYPE: usize = 156;
pub(super) const LINK: (usize, usize) = (157, 100);
pub(super) const MAGIC: (usize, usize) = (257, 8);
pub(super) const PREFIX: (usize, usize) = (345, 155);

/// One member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// As it stands in the archive: anything may be in it.
    pub(crate) path: Vec<u8>,
    /// Permission and privilege bits.
    pub(crate) mode: u32,
    /// Seconds since 1970.
    pub(crate) mtime: i64,
    pub(crate) kind: Kind,
}

/// What a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file of this many bytes.
    File(u64),
    Directory,
    /// A symbolic link and where it leads.
    Symlink(Vec<u8>),
    /// Another name of a member that came before.
    HardLink(Vec<u8>),
    /// A device, a pipe, or what only some program knows, by its type byte.
    Other(u8),
}

/// What is wrong with an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TarError(pub(super) &'static str);

impl fmt::Display for TarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for TarError {}

/// The sum of a header's bytes with its own field as blanks.
pub(super) fn checksum(header: &[u8; BLOCK]) -> u64 {
    let field = CHECKSUM.0..CHECKSUM.0 + CHECKSUM.1;
    header
        .iter()
        .enumerate()
        .map(|(index, byte)| if field.contains(&index) { u64::from(b' ') } else { u64::from(*byte) })
        .sum()
}
