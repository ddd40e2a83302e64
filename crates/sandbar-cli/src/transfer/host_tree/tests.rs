use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use super::*;
use crate::tar::{Decoder, Item};

fn read(source: &Path) -> io::Result<Vec<(String, Kind, Vec<u8>)>> {
    let meter = Meter::default();
    let mut tree = HostTree::open(source, "copy", &meter)?;
    let mut decoder = Decoder::default();
    let mut found: Vec<(String, Kind, Vec<u8>)> = Vec::new();
    while let Some(chunk) = tree.next()? {
        decoder.push(chunk);
        while let Some(item) = decoder.next().map_err(io::Error::other)? {
            match item {
                Item::Member(member) => {
                    found.push((member.path.escape_ascii().to_string(), member.kind, Vec::new()));
                }
                Item::Data(data) => found.last_mut().unwrap().2.extend_from_slice(&data),
            }
        }
    }
    decoder.finish().map_err(io::Error::other)?;
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

#[test]
fn a_tree_is_read_whole_and_links_stay_links() {
    let place = tempfile::tempdir().unwrap();
    let top = place.path().join("tree");
    fs::create_dir_all(top.join("a/b")).unwrap();
    let big: Vec<u8> = (0..700_001_u32).map(|n| n.to_le_bytes()[1]).collect();
    fs::write(top.join("a/big"), &big).unwrap();
    fs::hard_link(top.join("a/big"), top.join("z-same")).unwrap();
    fs::write(top.join("a/b").join(std::ffi::OsString::from_vec(b"odd\n\xff".to_vec())), "x").unwrap();
    symlink("/etc/passwd", top.join("away")).unwrap();
    symlink("/etc", top.join("folder-away")).unwrap();
    let found = read(&top).unwrap();
    let names: Vec<_> = found.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "copy",
            "copy/a",
            "copy/a/b",
            r"copy/a/b/odd\n\xff",
            "copy/a/big",
            "copy/away",
            "copy/folder-away",
            "copy/z-same"
        ]
    );
    assert_eq!(found[5].1, Kind::Symlink(b"/etc/passwd".to_vec()));
    assert_eq!(found[6].1, Kind::Symlink(b"/etc".to_vec()));
    // Whichever of the two names came first has the content.
    let contents: Vec<_> = [&found[4], &found[7]].into_iter().map(|(_, kind, data)| (kind, data)).collect();
    assert!(contents.iter().any(|(kind, data)| matches!(kind, Kind::File(_)) && **data == big));
    assert!(contents.iter().any(|(kind, _)| matches!(kind, Kind::HardLink(_))));
}

#[test]
fn a_single_file_is_the_top_and_a_typed_link_is_followed() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, "content").unwrap();
    symlink("file", place.path().join("link")).unwrap();
    for name in ["file", "link"] {
        let found = read(&place.path().join(name)).unwrap();
        assert_eq!(found, [("copy".into(), Kind::File(7), b"content".to_vec())]);
    }
}

#[test]
fn the_content_counts_and_not_the_size() {
    let found = read(Path::new("/proc/self/status")).unwrap();
    let Kind::File(size) = found[0].1 else { panic!("{:?}", found[0].1) };
    assert_eq!(size, found[0].2.len() as u64);
    assert!(found[0].2.starts_with(b"Name:"));

    // A large one is announced before it is read, so it has to stay as it was.
    let place = tempfile::tempdir().unwrap();
    for (change, word) in [(2 * CHUNK as u64, "shorter"), (9 * CHUNK as u64, "longer")] {
        let path = place.path().join(word);
        fs::write(&path, vec![1; 8 * CHUNK]).unwrap();
        let meter = Meter::default();
        let mut tree = HostTree::open(&path, "copy", &meter).unwrap();
        tree.next().unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_len(change).unwrap();
        let error = loop {
            match tree.next() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{word}"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn what_is_no_file_is_refused_by_name() {
    let place = tempfile::tempdir().unwrap();
    let _listener = UnixListener::bind(place.path().join("sock")).unwrap();
    let error = read(place.path()).unwrap_err().to_string();
    assert!(error.contains("sock") && error.contains("a socket"), "{error}");
    assert!(read(Path::new("/dev/null")).unwrap_err().to_string().contains("a device"));
    assert!(read(&place.path().join("none")).is_err());
}
