//! Whatever an archive holds: it is unpacked as it says, or refused by name, and nothing leaves the folder.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use common::{BLOCK, file, member, pax, tar, unpack};
use sandbar_archive::{ErrorKind, Rules};
use tempfile::tempdir;

#[test]
fn files_folders_and_links_are_as_the_archive_says() {
    let folder = tempdir().unwrap();
    let archive = tar(&[
        member(b"d/", b'5', 0o500, b"", b""),
        file("d/f", b"content"),
        member(b"d/hard", b'1', 0o644, b"d/f", b""),
        member(b"d/soft", b'2', 0o777, b"f", b""),
        member(b"implied/tool", b'0', 0o6751, b"", b"x"),
    ]);
    let report = unpack(Rules::default(), &archive, folder.path()).unwrap();
    assert_eq!((report.entries, report.bytes), (5, 8));
    let at = |name: &str| folder.path().join(name);
    assert_eq!(fs::read(at("d/soft")).unwrap(), b"content");
    assert_eq!(fs::metadata(at("d/f")).unwrap().ino(), fs::metadata(at("d/hard")).unwrap().ino());
    assert_eq!(fs::metadata(at("d")).unwrap().permissions().mode() & 0o7777, 0o500);
    assert_eq!(fs::metadata(at("implied/tool")).unwrap().permissions().mode() & 0o7777, 0o751);
    assert_eq!(fs::metadata(at("d/f")).unwrap().mtime(), 0);
    fs::set_permissions(at("d"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn every_cut_is_seen() {
    let whole = tar(&[pax(&[("path", b"first")]), file("x", b"1"), file("second", &[1; 700])]);
    for cut in (0..whole.len()).step_by(100).chain((0..whole.len()).step_by(BLOCK)) {
        let folder = tempdir().unwrap();
        let error = unpack(Rules::default(), &whole[..cut], folder.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Truncated, "cut after {cut}: {error}");
    }
    let folder = tempdir().unwrap();
    unpack(Rules::default(), &whole, folder.path()).unwrap();
    assert_eq!(fs::read(folder.path().join("first")).unwrap(), b"1");
}
