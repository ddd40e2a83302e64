//! What is packed is unpacked as it was, in whatever pieces it comes, and other programs agree.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use common::{pack, unpack};
use proptest::prelude::*;
use sandbar_archive::{Pack, PackReport, Rules, Unpack};
use tempfile::tempdir;

/// One entry as it is compared: rights, time, and content or target.
type Entry = (u32, i64, i64, Vec<u8>);

fn entries(top: &Path) -> BTreeMap<Vec<u8>, Entry> {
    let mut found = BTreeMap::new();
    let mut folders = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            let meta = path.symlink_metadata().unwrap();
            let content = if meta.is_dir() {
                folders.push(path.clone());
                Vec::new()
            } else if meta.is_symlink() {
                fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
            } else {
                fs::read(&path).unwrap()
            };
            let name = path.strip_prefix(top).unwrap().as_os_str().as_bytes().to_vec();
            found.insert(name, (meta.mode(), meta.mtime(), meta.mtime_nsec(), content));
        }
    }
    found
}

#[derive(Clone, Debug)]
enum Made {
    File(Vec<u8>, u32),
    Link,
    Hard,
    Folder(u32),
}

fn made() -> impl Strategy<Value = (Vec<String>, Made)> {
    let name = prop_oneof!["[a-c]", "[ -~&&[^/]]{1,12}", "\\PC{1,20}", Just("x".repeat(255))];
    let names = proptest::collection::vec(name.prop_map(|name| name.replace(['/', '\0'], "_")), 1..4);
    let kind = prop_oneof![
        4 => (proptest::collection::vec(any::<u8>(), 0..1500), 0o400_u32..0o777).prop_map(|(content, mode)| Made::File(content, mode)),
        1 => Just(Made::Link),
        1 => Just(Made::Hard),
        1 => (0o700_u32..0o777).prop_map(Made::Folder),
    ];
    (names, kind)
}

fn build(top: &Path, wanted: &[(Vec<String>, Made)]) {
    let mut files: Vec<std::path::PathBuf> = Vec::new();
    for (names, what) in wanted {
        let path = names
            .iter()
            .fold(top.to_owned(), |path, name| path.join(if name.starts_with('.') { "dots" } else { name }));
        let Some(parent) = path.parent() else { continue };
        // Where something else is in the way already, this one is left out.
        if fs::create_dir_all(parent).is_err() || path.symlink_metadata().is_ok() {
            continue;
        }
        match what {
            Made::File(content, mode) => {
                fs::write(&path, content).unwrap();
                fs::set_permissions(&path, PermissionsExt::from_mode(mode | 0o400)).unwrap();
                files.push(path);
            }
            Made::Link => symlink("somewhere", &path).unwrap(),
            Made::Hard => {
                if let Some(first) = files.first() {
                    fs::hard_link(first, &path).unwrap();
                }
            }
            Made::Folder(mode) => {
                fs::create_dir(&path).unwrap();
                fs::set_permissions(&path, PermissionsExt::from_mode(*mode)).unwrap();
            }
        }
    }
}

/// Gives what it has in pieces of these sizes, over and over.
struct Pieces<'a> {
    rest: &'a [u8],
    sizes: &'a [usize],
    next: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.sizes[self.next % self.sizes.len()].min(buffer.len()).min(self.rest.len());
        self.next += 1;
        buffer[..size].copy_from_slice(&self.rest[..size]);
        self.rest = &self.rest[size..];
        Ok(size)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_comes_back_in_any_pieces(
        wanted in proptest::collection::vec(made(), 0..25),
        sizes in proptest::collection::vec(1_usize..3000, 1..6),
    ) {
        let (tree, back) = (tempdir().unwrap(), tempdir().unwrap());
        build(tree.path(), &wanted);
        let tar = pack(tree.path(), "top");
        prop_assert_eq!(&tar, &pack(tree.path(), "top"));
        let into = fs::File::open(back.path()).unwrap();
        let mut pieces = Pieces { rest: &tar, sizes: &sizes, next: 0 };
        let report = Unpack::new(Rules::default()).run(&mut pieces, into.as_fd()).unwrap();
        let before = entries(tree.path());
        prop_assert_eq!(report.entries, before.len() as u64 + 1);
        prop_assert_eq!(entries(&back.path().join("top")), before);
        // And what came back is packed the same.
        prop_assert_eq!(pack(&back.path().join("top"), "top"), tar);
    }

    #[test]
    fn any_cut_is_an_error(wanted in proptest::collection::vec(made(), 0..6), at in any::<prop::sample::Index>()) {
        let tree = tempdir().unwrap();
        build(tree.path(), &wanted);
        let tar = pack(tree.path(), "top");
        let back = tempdir().unwrap();
        let error = unpack(Rules::default(), &tar[..at.index(tar.len())], back.path()).unwrap_err();
        prop_assert_eq!(error.kind(), sandbar_archive::ErrorKind::Truncated);
    }
}

/// A tree with all that archives disagree about.
fn odd(top: &Path) {
    let long = top.join("l".repeat(200)).join("m".repeat(255));
    fs::create_dir_all(&long).unwrap();
    fs::write(long.join("new\nline"), "x").unwrap();
    fs::write(top.join("zürich"), vec![1; 70_000]).unwrap();
    fs::hard_link(top.join("zürich"), long.join("other name")).unwrap();
    symlink("t".repeat(180), top.join("long target")).unwrap();
    fs::write(top.join("-option"), "").unwrap();
}

#[test]
fn tar_reads_what_is_packed_and_what_tar_packs_is_read() {
    let (tree, back) = (tempdir().unwrap(), tempdir().unwrap());
    odd(tree.path());
    let archive = back.path().join("archive");
    fs::write(&archive, pack(tree.path(), "top")).unwrap();
    let run = |arguments: &[&std::ffi::OsStr]| {
        let output = Command::new("tar").args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let words = |list: &[&str]| list.iter().map(std::ffi::OsString::from).collect::<Vec<_>>();
    let with = |mut words: Vec<std::ffi::OsString>, path: &Path, rest: &[&str]| {
        words.push(path.into());
        words.extend(rest.iter().map(std::ffi::OsString::from));
        words
    };
    let unpacking = with(with(words(&["-x", "-p", "-C"]), back.path(), &["-f"]), &archive, &[]);
    run(&unpacking.iter().map(std::ffi::OsString::as_os_str).collect::<Vec<_>>());
    assert_eq!(entries(&back.path().join("top")), entries(tree.path()));
    for format in ["gnu", "pax", "ustar", "v7", "oldgnu"] {
        let tree = if matches!(format, "ustar" | "v7") {
            // What these can say at all.
            let small = tempdir().unwrap();
            fs::create_dir_all(small.path().join("d").join("e".repeat(50))).unwrap();
            fs::write(small.path().join("d/file"), "x").unwrap();
            small
        } else {
            let large = tempdir().unwrap();
            odd(large.path());
            large
        };
        let packing = with(
            with(words(&[&format!("--format={format}"), "-c", "-f"]), &archive, &["-C"]),
            tree.path(),
            &["."],
        );
        run(&packing.iter().map(std::ffi::OsString::as_os_str).collect::<Vec<_>>());
        let again = tempdir().unwrap();
        // Its tree has a name at the top that looks like an option.
        let rules = Rules::default().with_names(sandbar_archive::Names::Rootfs);
        unpack(rules, &fs::read(&archive).unwrap(), again.path()).unwrap();
        let without_nanoseconds = |mut all: BTreeMap<Vec<u8>, Entry>| {
            for entry in all.values_mut() {
                entry.2 = 0;
            }
            all
        };
        let (back, before) = (entries(again.path()), entries(tree.path()));
        match format {
            "pax" => assert_eq!(back, before),
            _ => assert_eq!(without_nanoseconds(back), without_nanoseconds(before), "{format}"),
        }
    }
}

#[test]
fn what_is_no_file_is_left_out_and_counted_and_one_file_is_a_tree() {
    let tree = tempdir().unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        tree.path().join("pipe"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    fs::write(tree.path().join("file"), "x").unwrap();
    let mut tar = Vec::new();
    let open = |path: &Path| fs::File::open(path).unwrap();
    let report = Pack::new().run(open(tree.path()).as_fd(), b"top", &mut tar).unwrap();
    assert_eq!(report, PackReport { entries: 2, bytes: 1, skipped: 1, ..PackReport::default() });
    let mut one = Vec::new();
    Pack::new().run(open(&tree.path().join("file")).as_fd(), b"file", &mut one).unwrap();
    let back = tempdir().unwrap();
    unpack(Rules::default(), &one, back.path()).unwrap();
    assert_eq!(fs::read(back.path().join("file")).unwrap(), b"x");
}

#[test]
fn what_fails_has_no_end_marker() {
    let tree = tempdir().unwrap();
    fs::write(tree.path().join("a"), "x").unwrap();
    let deep = (0..300).fold(tree.path().to_owned(), |path, _| path.join("d"));
    fs::create_dir_all(deep).unwrap();
    let mut tar = Vec::new();
    let error = Pack::new().run(fs::File::open(tree.path()).unwrap().as_fd(), b"top", &mut tar).unwrap_err();
    assert_eq!(error.kind(), sandbar_archive::ErrorKind::Limit);
    let back = tempdir().unwrap();
    let error = unpack(Rules::default(), &tar, back.path()).unwrap_err();
    assert_eq!(error.kind(), sandbar_archive::ErrorKind::Truncated);
}

#[test]
fn attributes_of_users_pass_and_no_others() {
    let from = tempdir().unwrap();
    let top = from.path().join("top");
    fs::create_dir(&top).unwrap();
    fs::write(top.join("file"), "x").unwrap();
    let value: Vec<u8> = (0..=255).collect();
    for path in [top.clone(), top.join("file")] {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&path, "user.kept", &value, flags).unwrap();
        rustix::fs::setxattr(&path, "user.empty", b"", flags).unwrap();
    }
    let tar = pack(&top, "top");
    let to = tempdir().unwrap();
    unpack(Rules::default(), &tar, to.path()).unwrap();
    let mut names = [0; 1024];
    for path in [to.path().join("top"), to.path().join("top/file")] {
        let mut read = vec![0; 1024];
        let length = rustix::fs::getxattr(&path, "user.kept", &mut read[..]).unwrap();
        assert_eq!(read[..length], value, "{}", path.display());
        assert_eq!(rustix::fs::getxattr(&path, "user.empty", &mut read[..]).unwrap(), 0);
        let length = rustix::fs::listxattr(&path, &mut names[..]).unwrap();
        let users = names[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user."));
        assert_eq!(users.count(), 2);
    }
    // Another program reads them as well.
    let other = tempdir().unwrap();
    let mut tar_program = Command::new("tar");
    tar_program.args(["--xattrs", "--xattrs-include=user.*", "-xf", "-", "-C"]).arg(other.path());
    let mut running = tar_program.stdin(std::process::Stdio::piped()).spawn().unwrap();
    io::Write::write_all(&mut running.stdin.take().unwrap(), &tar).unwrap();
    assert!(running.wait().unwrap().success());
    let mut read = vec![0; 1024];
    let length = rustix::fs::getxattr(other.path().join("top/file"), "user.kept", &mut read[..]).unwrap();
    assert_eq!(read[..length], value);
    // A name that no archive can hold is said.
    rustix::fs::setxattr(top.join("file"), "user.a=b", b"", rustix::fs::XattrFlags::empty()).unwrap();
    let tree = fs::File::open(&top).unwrap();
    let error = Pack::new().run(tree.as_fd(), b"top", &mut io::sink()).unwrap_err();
    assert!(error.to_string().contains("user.a=b"), "{error}");
}

#[test]
fn a_file_that_becomes_shorter_is_an_error_and_the_archive_has_no_end() {
    let from = tempdir().unwrap();
    let top = from.path().join("top");
    fs::create_dir(&top).unwrap();
    let shrinking = top.join("shrinking");
    fs::write(&shrinking, vec![b'x'; 1 << 20]).unwrap();
    let mut shorten = |progress: sandbar_archive::Progress| {
        if progress.bytes > 0 {
            fs::File::options().write(true).open(&shrinking).unwrap().set_len(100).unwrap();
        }
    };
    let tree = fs::File::open(&top).unwrap();
    let mut tar = Vec::new();
    let packed = Pack::new().with_progress(&mut shorten).run(tree.as_fd(), b"top", &mut tar);
    let error = packed.unwrap_err();
    assert!(error.to_string().contains("shrinking") && error.to_string().contains("shorter"), "{error}");
    assert!(!tar.ends_with(&[0; 1024]));
}

#[test]
fn bits_that_give_privileges_are_left_out_with_the_owners() {
    let from = tempdir().unwrap();
    let top = from.path().join("top");
    fs::create_dir(&top).unwrap();
    fs::write(top.join("file"), "x").unwrap();
    fs::set_permissions(top.join("file"), fs::Permissions::from_mode(0o6755)).unwrap();
    fs::set_permissions(&top, fs::Permissions::from_mode(0o3777)).unwrap();
    let tar = pack(&top, "top");
    let mut archive = tar::Archive::new(&tar[..]);
    let modes: Vec<_> =
        archive.entries().unwrap().map(|entry| entry.unwrap().header().mode().unwrap()).collect();
    assert_eq!(modes, [0o777, 0o755]);
}
