use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::tar::fuzzing::repaired;
use crate::tar::{Decoder, Item};

/// Whatever a sandbox sends, nothing but the copy's own place changes, all or nothing, and nothing half-made stays.
pub(crate) fn unpack(data: &[u8]) {
    let Some((how, stream)) = data.split_first() else { return };
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let at = |name: &str| scratch.path().join(name);
    fs::create_dir(at("victim")).expect("a folder");
    fs::write(at("victim/file"), "whole").expect("a file");
    let before = match how & 3 {
        1 => fs::write(at("out"), "old").map(|()| Some("out")),
        2 => {
            fs::create_dir(at("out")).and_then(|()| fs::write(at("out/old"), "old")).map(|()| Some("out/old"))
        }
        _ => Ok(None),
    };
    let before = before.expect("what is in the copy's place");
    let existing = if how & 4 == 0 { Existing::Keep } else { Existing::Replace };
    let placement = if how & 8 == 0 || how & 3 != 2 { Placement::IntoOrAs } else { Placement::Into };
    // As it is meant, and with the tree's own name for the destination's.
    let root: &[u8] = if how & 16 == 0 { b"src" } else { b"out" };

    let mut unpacking =
        Unpacking::start(&at("out"), placement, existing, root).expect("a place for the copy");
    let done = filled(&mut unpacking, &repaired(stream));
    let done = match done {
        Ok(()) => unpacking.commit(),
        Err(error) => {
            unpacking.abort().map_or_else(|left| panic!("{} is left", left.display()), |()| Err(error))
        }
    };

    let names: Vec<_> = fs::read_dir(scratch.path())
        .expect("the scratch folder")
        .map(|e| e.expect("a name").file_name())
        .collect();
    assert!(names.iter().all(|name| name == "out" || name == "victim"), "{names:?} after {done:?}");
    assert_eq!(fs::read_dir(at("victim")).expect("the victim").count(), 1);
    assert_eq!(fs::read(at("victim/file")).expect("the victim's file"), b"whole");
    assert_eq!(fs::metadata(at("victim/file")).expect("it").permissions().mode() & 0o7000, 0);
    match (&done, before) {
        (Err(_), None) => assert_eq!(names.len(), 1, "{done:?}"),
        (Err(_), Some(old)) => assert_eq!(fs::read(at(old)).expect("what was there"), b"old"),
        (Ok(()), _) => without_privileges(&at("out")),
    }
    let parent = rustix::fs::open(scratch.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
    for name in ["out", "victim"] {
        let made = fs::symlink_metadata(at(name)).is_ok_and(|meta| meta.is_dir());
        assert!(
            !made || sandbar_archive::discard(parent.as_ref().expect("it").as_fd(), OsStr::new(name)).is_ok(),
            "{name} can be removed"
        );
    }
}

fn filled(unpacking: &mut Unpacking, stream: &[u8]) -> io::Result<()> {
    let mut decoder = Decoder::default();
    for piece in stream.chunks(1000) {
        decoder.push(bytes::Bytes::copy_from_slice(piece));
        while let Some(item) = decoder.next().map_err(io::Error::other)? {
            match &item {
                Item::Member(member) => unpacking.member(member)?,
                Item::Data(data) => unpacking.data(data)?,
            }
        }
    }
    decoder.finish().map_err(io::Error::other)
}

/// No bits that give privileges, nothing but files, folders and links.
fn without_privileges(path: &Path) {
    let mut waiting = vec![path.to_owned()];
    while let Some(path) = waiting.pop() {
        // As an ordinary user a folder without rights, or a path that is too long, can't be looked into.
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        let kind = meta.file_type();
        assert!(kind.is_file() || kind.is_dir() || kind.is_symlink());
        assert!(kind.is_symlink() || meta.permissions().mode() & 0o7000 == 0, "{}", path.display());
        if kind.is_dir()
            && let Ok(names) = fs::read_dir(&path)
        {
            waiting.extend(names.filter_map(Result::ok).map(|entry| entry.path()));
        }
    }
}
