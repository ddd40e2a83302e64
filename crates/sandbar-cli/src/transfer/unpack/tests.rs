use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

fn member(path: &str, kind: Kind) -> Member {
    Member { path: path.into(), mode: 0o750, mtime: 1_600_000_000, kind }
}

fn folder(path: &str) -> Member {
    member(path, Kind::Directory)
}

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self) -> Unpacking {
        self.start_with(Existing::Keep)
    }

    fn start_with(&self, existing: Existing) -> Unpacking {
        Unpacking::start(&self.path("out"), Placement::IntoOrAs, existing, b"src").unwrap()
    }

    /// What is in the place, by name.
    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<_> = names.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

#[test]
fn a_tree_arrives_with_links_modes_and_times() {
    let place = Place::new();
    let mut unpacking = place.start();
    for member in [
        member("./src/", Kind::Directory),
        Member { mode: 0o4555, ..member("./src/tool", Kind::File(10_000)) },
    ] {
        unpacking.member(&member).unwrap();
    }
    // A start, a hole, an end.
    let mut content = vec![0; 10_000];
    content[..3].copy_from_slice(b"abc");
    content[9999] = b'z';
    for piece in content.chunks(7000) {
        unpacking.data(piece).unwrap();
    }
    unpacking.member(&member("src/away", Kind::Symlink(b"/etc/passwd".to_vec()))).unwrap();
    unpacking.member(&member("src/same", Kind::HardLink(b"./src/tool".to_vec()))).unwrap();
    unpacking.member(&Member { mode: 0, ..folder("src/closed") }).unwrap();
    unpacking.commit().unwrap();

    assert_eq!(place.names(), ["out"]);
    let out = place.path("out");
    assert_eq!(fs::read(out.join("tool")).unwrap(), content);
    let tool = fs::metadata(out.join("tool")).unwrap();
    assert_eq!((tool.mode() & 0o7000, tool.mode() & 0o500, tool.mtime()), (0, 0o500, 1_600_000_000));
    assert_eq!(fs::metadata(out.join("same")).unwrap().ino(), tool.ino());
    assert_eq!(fs::read_link(out.join("away")).unwrap(), Path::new("/etc/passwd"));
    assert_eq!(fs::metadata(out.join("closed")).unwrap().mode() & 0o777, 0);
    assert_eq!(fs::metadata(&out).unwrap().mtime(), 1_600_000_000);
    fs::set_permissions(out.join("closed"), PermissionsExt::from_mode(0o700)).unwrap();
}

#[test]
fn nothing_leaves_the_tree() {
    for path in ["/etc/x", "src/../../x", "../x", "other/x", "src/..", "", ".", "srcx", "src/a/../../../x"] {
        let place = Place::new();
        let mut unpacking = place.start();
        unpacking.member(&folder("src")).unwrap();
        assert!(unpacking.member(&member(path, Kind::File(0))).is_err(), "{path}");
        unpacking.abort().unwrap();
        assert!(place.names().is_empty(), "{path}: {:?}", place.names());
    }
}

#[test]
fn links_in_the_tree_are_not_followed() {
    let place = Place::new();
    fs::create_dir(place.path("victim")).unwrap();
    fs::write(place.path("victim/file"), "whole").unwrap();
    let mut unpacking = place.start();
    unpacking.member(&folder("src")).unwrap();
    unpacking.member(&member("src/up", Kind::Symlink(b"../../victim".to_vec()))).unwrap();
    unpacking.member(&member("src/file", Kind::Symlink(b"../../victim/file".to_vec()))).unwrap();
    for hostile in [
        member("src/up/new", Kind::File(0)),
        folder("src/up/new"),
        member("src/up/new", Kind::Symlink(b"x".to_vec())),
        // A second member of the same name must not write through the link.
        member("src/file", Kind::File(0)),
        member("src/stolen", Kind::HardLink(b"src/up/file".to_vec())),
        member("src/stolen", Kind::HardLink(b"../victim/file".to_vec())),
        member("src/device", Kind::Other(b'3')),
        member("src/pipe", Kind::Other(b'6')),
    ] {
        assert!(unpacking.member(&hostile).is_err(), "{hostile:?}");
    }
    drop(unpacking);
    assert_eq!(place.names(), ["victim"]);
    assert_eq!(fs::read_dir(place.path("victim")).unwrap().count(), 1);
    assert_eq!(fs::read(place.path("victim/file")).unwrap(), b"whole");
}

#[test]
fn a_copy_cut_short_leaves_nothing() {
    let place = Place::new();
    let mut unpacking = place.start();
    unpacking.member(&member("src", Kind::File(10))).unwrap();
    unpacking.data(b"abc").unwrap();
    assert!(unpacking.commit().unwrap_err().to_string().contains("cut short"));
    assert!(place.names().is_empty());
    assert!(place.start().commit().unwrap_err().to_string().contains("sent nothing"));
    assert!(place.names().is_empty());
}

#[test]
fn a_file_is_replaced_and_a_folder_is_not() {
    let place = Place::new();
    fs::write(place.path("kept"), "kept").unwrap();
    symlink(place.path("kept"), place.path("out")).unwrap();
    let mut unpacking = place.start();
    unpacking.member(&member("src", Kind::File(3))).unwrap();
    unpacking.data(b"new").unwrap();
    unpacking.commit().unwrap();
    // The link was replaced, not followed.
    assert_eq!(fs::read(place.path("kept")).unwrap(), b"kept");
    assert_eq!(fs::read(place.path("out")).unwrap(), b"new");

    fs::remove_file(place.path("out")).unwrap();
    fs::create_dir_all(place.path("out/src")).unwrap();
    let mut unpacking = place.start();
    unpacking.member(&folder("src")).unwrap();
    let error = unpacking.commit().unwrap_err().to_string();
    assert!(error.contains("not merged"), "{error}");
    assert_eq!(place.names(), ["kept", "out"]);
}

#[test]
fn an_existing_folder_is_copied_into() {
    let place = Place::new();
    fs::create_dir(place.path("out")).unwrap();
    let mut unpacking = place.start();
    unpacking.member(&folder("src")).unwrap();
    unpacking.member(&member("src/a", Kind::File(0))).unwrap();
    unpacking.commit().unwrap();
    assert!(place.path("out/src/a").exists());
    let missing = Unpacking::start(&place.path("none/"), Placement::Into, Existing::Keep, b"src");
    assert!(missing.unwrap_err().to_string().contains("none"));
}

#[test]
fn what_is_there_gives_way_where_that_was_asked_for() {
    let place = Place::new();
    // A folder for a folder, a file for it, and a folder for that.
    fs::create_dir_all(place.path("out/old/deep")).unwrap();
    for (round, kind) in [Kind::Directory, Kind::File(0), Kind::Directory].into_iter().enumerate() {
        let is_folder = kind == Kind::Directory;
        let mut unpacking = place.start_with(Existing::Replace);
        unpacking.member(&member("src", kind)).unwrap();
        if is_folder {
            unpacking.member(&member(&format!("src/{round}"), Kind::File(0))).unwrap();
        }
        unpacking.commit().unwrap();
        assert_eq!(place.names(), ["out"]);
        assert_eq!(place.path("out").is_dir(), is_folder);
        assert!(!place.path("out/old").exists());
        assert_eq!(place.path(&format!("out/{round}")).exists(), is_folder);
    }
    // A link is replaced, and what it leads to stays.
    fs::rename(place.path("out"), place.path("kept")).unwrap();
    symlink("kept", place.path("out")).unwrap();
    let mut unpacking = place.start_with(Existing::Replace);
    unpacking.member(&folder("src")).unwrap();
    unpacking.commit().unwrap();
    assert!(place.path("kept/2").exists() && !place.path("out").is_symlink());
}

#[test]
fn a_copy_that_is_refused_at_its_end_leaves_nothing_of_folders_without_rights() {
    let place = Place::new();
    fs::create_dir_all(place.path("out/src")).unwrap();
    let mut unpacking = place.start();
    unpacking.member(&folder("src")).unwrap();
    for mode in [0, 0o555] {
        let name = format!("src/{mode}");
        unpacking.member(&Member { mode, ..folder(&name) }).unwrap();
        unpacking.member(&member(&format!("{name}/file"), Kind::File(0))).unwrap();
    }
    assert!(unpacking.commit().unwrap_err().to_string().contains("not merged"));
    assert_eq!(
        (place.names(), fs::read_dir(place.path("out")).unwrap().count()),
        (vec!["out".to_owned()], 1)
    );
}

#[test]
fn a_tree_as_deep_as_a_path_goes_leaves_nothing() {
    let place = Place::new();
    let mut unpacking = place.start();
    let mut path = String::from("src");
    let mut depth = 0;
    while unpacking.member(&folder(&path)).is_ok() {
        path.push_str("/d");
        depth += 1;
    }
    assert!(depth > 1500, "{depth}");
    unpacking.abort().unwrap();
    assert!(place.names().is_empty());
}

#[test]
fn holes_begin_and_end_with_blocks_wherever_pieces_do() {
    let mut content = vec![1_u8; 3 * HOLE];
    content.extend(vec![0; 5 * HOLE]);
    content.extend(vec![1; 100]);
    content.extend(vec![0; 3 * HOLE]);
    for piece in [1, 100, HOLE - 1, HOLE, HOLE + 1, 3 * HOLE + 7, content.len()] {
        let place = Place::new();
        let mut unpacking = place.start();
        unpacking.plain_file(0o600, None).unwrap();
        for data in content.chunks(piece) {
            unpacking.data(data).unwrap();
        }
        unpacking.commit().unwrap();
        assert!(fs::read(place.path("out")).unwrap() == content, "in pieces of {piece}");
    }
    assert_eq!(next_run(&content, 0), (3 * HOLE, 5 * HOLE));
    assert_eq!(next_run(&content[3 * HOLE..], 3 * HOLE as u64), (0, 5 * HOLE));
    assert_eq!(next_run(&content[8 * HOLE..], 8 * HOLE as u64), (HOLE, 2 * HOLE + 100));
    assert_eq!(next_run(&[0, 0, 1], HOLE as u64 - 2), (0, 2), "up to the end of a block");
    assert_eq!(next_run(&[0, 0, 1], 0), (3, 0), "a block that is not all zero");
}

#[test]
fn names_of_folders_are_kept_within_a_bound() {
    let place = Place::new();
    let mut unpacking = place.start();
    unpacking.member(&folder("src")).unwrap();
    unpacking.name_bytes = MAX_NAMES;
    let error = unpacking.member(&folder("src/one-more")).unwrap_err().to_string();
    assert!(error.contains("256 MiB"), "{error}");
    // A file's name is not kept.
    unpacking.member(&member("src/file", Kind::File(0))).unwrap();
}
