//! What the fuzz targets run (decision 0009): each function takes any bytes and panics where a promise does not hold.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use crate::read::BLOCK;
use crate::{
    ArchiveError, ErrorKind, Owners, Pack, Rules, Unpack, UnpackReport, Whiteouts, decompress, discard,
};

/// Most bytes that are taken of what comes out of compression.
const MAX_OUTPUT: u64 = 1 << 20;

/// Whatever an archive holds, and in whatever pieces it comes: the same comes of it, nothing outside the folder changes, no privilege comes of it, what is packed of
/// the outcome can be unpacked, and all of it can be removed. The first byte chooses the rules, and whether checksums are made right before.
pub fn tar_stream(data: &[u8]) {
    let Some((how, stream)) = data.split_first() else { return };
    let rules = if how & 1 == 0 { Rules::default() } else { Rules::rootfs().with_owners(Owners::Caller) };
    let rules = rules
        .with_whiteouts(if how & 2 == 0 { Whiteouts::None } else { Whiteouts::Oci })
        .with_max_bytes(MAX_OUTPUT);
    let stream = if how & 4 == 0 { repaired(stream) } else { stream.to_vec() };
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let at = |name: &str| scratch.path().join(name);
    for name in ["victim", "whole", "pieces", "again"] {
        fs::create_dir(at(name)).expect("a folder");
    }
    fs::write(at("victim/file"), "whole").expect("a file");
    let whole = unpacked(&rules, &mut &*stream, &at("whole"));
    let mut pieces = Pieces { rest: &stream, step: 1 + stream.len() / 50 };
    assert_eq!(told(&unpacked(&rules, &mut pieces, &at("pieces"))), told(&whole));
    assert_eq!(fs::read_dir(scratch.path()).expect("the scratch folder").count(), 4);
    assert_eq!(fs::read_dir(at("victim")).expect("the victim").count(), 1);
    assert_eq!(fs::read(at("victim/file")).expect("the victim's file"), b"whole");
    assert_eq!(fs::metadata(at("victim/file")).expect("it").permissions().mode() & 0o7000, 0);
    harmless(&at("whole"), how & 1 == 0);
    if let (Ok(_), true) = (&whole, how & 1 == 0) {
        repeats(&at("whole"), &at("again"));
    }
    let parent = fs::File::open(scratch.path()).expect("the scratch folder");
    for name in ["whole", "pieces", "again"] {
        discard(parent.as_fd(), OsStr::new(name)).expect("it can be removed");
    }
}

/// Compressed streams, damaged ones too: the same comes out in whatever pieces they come.
pub fn compressed(data: &[u8]) {
    let read = |reader: &mut dyn Read| {
        let mut text = Vec::new();
        let end = reader.take(MAX_OUTPUT).read_to_end(&mut text);
        (text, end.map_err(|error| error.kind()))
    };
    let whole = decompress(data).map(|mut reader| read(&mut reader)).expect("memory can be read");
    let pieces = Pieces { rest: data, step: 1 + data.len() / 100 };
    let pieces = decompress(pieces).map(|mut reader| read(&mut reader)).expect("memory can be read");
    assert_eq!(pieces.1, whole.1);
    if whole.1.is_ok() {
        assert!(pieces.0 == whole.0);
    }
}

fn unpacked(rules: &Rules, tar: &mut dyn Read, into: &Path) -> Result<UnpackReport, ArchiveError> {
    Unpack::new(rules.clone()).run(tar, fs::File::open(into).expect("a folder").as_fd())
}

fn told(outcome: &Result<UnpackReport, ArchiveError>) -> Result<UnpackReport, (ErrorKind, String)> {
    match outcome {
        Ok(report) => Ok(*report),
        Err(error) => {
            assert!(
                error.to_string().len() < 10_000 && !error.to_string().contains(char::is_control),
                "{error}"
            );
            Err((error.kind(), error.to_string()))
        }
    }
}

/// No privilege bit on any file, no device but a whiteout, and no link that leads out where that is promised.
fn harmless(top: &Path, strict: bool) {
    let root = fs::File::open(top).expect("the folder");
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        // Of a whole archive, folders may be closed to their owner.
        let Ok(entries) = fs::read_dir(top.join(&folder)) else { continue };
        for entry in entries.flatten() {
            let path = folder.join(entry.file_name());
            let Ok(meta) = entry.metadata() else { continue };
            assert_eq!(
                meta.permissions().mode() & if meta.is_dir() { 0o6000 } else { 0o7000 },
                0,
                "{}",
                path.display()
            );
            if meta.is_dir() {
                folders.push(path);
            } else if meta.is_symlink() && strict {
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                let beneath = openat2(&root, &path, flags, Mode::empty(), ResolveFlags::BENEATH);
                assert_ne!(beneath.err(), Some(Errno::XDEV), "{} leads out", path.display());
            }
        }
    }
}

/// What was unpacked is packed, and unpacked again.
fn repeats(tree: &Path, again: &Path) {
    let mut tar = Vec::new();
    let packed = Pack::new().run(fs::File::open(tree).expect("the tree").as_fd(), b"top", &mut tar);
    match packed {
        Ok(packed) => {
            let report = unpacked(&Rules::default(), &mut &*tar, again).expect("what was packed");
            assert_eq!((report.entries, report.bytes), (packed.entries, packed.bytes));
        }
        // An ordinary user may not read what has no rights.
        Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "{error}"),
    }
}

/// The archive with right checksums: nobody finds one by chance, and a hostile sender has them right.
fn repaired(stream: &[u8]) -> Vec<u8> {
    let mut bytes = stream.to_vec();
    for block in bytes.chunks_exact_mut(BLOCK).filter(|block| block[257..].starts_with(b"ustar")) {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    bytes
}

/// Gives what it has step by step.
struct Pieces<'a> {
    rest: &'a [u8],
    step: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.step.min(buffer.len()).min(self.rest.len());
        buffer[..size].copy_from_slice(&self.rest[..size]);
        self.rest = &self.rest[size..];
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    sandbar_replay::replay_tests!(compressed);

    #[test]
    fn tar_stream() {
        // Each makes and removes trees.
        sandbar_replay::replay_with("tar_stream", super::tar_stream, sandbar_replay::MUTATIONS / 16);
    }
}
