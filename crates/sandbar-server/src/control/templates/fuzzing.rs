//! What fuzz targets run of templates; see `crate::fuzzing`.

use std::io::{Seek as _, Write as _};

use super::copy;
use super::name::{self, Reference};
use super::order::Copy;

/// Names and tags: what is read is written the same and reads the same again.
pub(crate) fn name(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(reference) = Reference::parse(text) {
        let written = reference.to_string();
        assert_eq!(Reference::parse(&written).expect("what is written can be read"), reference);
        assert!(written.bytes().all(|byte| byte.is_ascii_lowercase() || b"0123456789-_.:/".contains(&byte)));
        assert!(!reference.name.contains(['/', ':', '.']));
    }
    if let Ok(tag) = name::tag(text) {
        assert!(!name::is_build_id(&tag) && !tag.contains([':', '/']));
    }
}

/// A source, a line break, and an upload: what is made of it is an archive whose names do not climb and whose owners are nobody.
pub(crate) fn copy(data: &[u8]) {
    let Some(at) = data.iter().position(|byte| *byte == b'\n') else { return };
    let Ok(from) = std::str::from_utf8(&data[..at]) else { return };
    let mut upload = tempfile::NamedTempFile::new().expect("a file");
    upload.write_all(&data[at + 1..]).expect("it is written");
    let copy =
        Copy { from: from.to_owned(), to: "/".to_owned(), user: None, mode: None, hash: String::new() };
    let mut made = tempfile::tempfile().expect("a file");
    if copy::rewrite(upload.path(), &copy, &mut made).is_err() {
        return;
    }
    made.rewind().expect("it is read from its beginning");
    for entry in tar::Archive::new(made).entries().expect("an archive") {
        let entry = entry.expect("an entry");
        let name = entry.path_bytes();
        assert!(!name.starts_with(b"/") && name.split(|byte| *byte == b'/').all(|part| part != b".."));
        assert_eq!(entry.header().uid().expect("a number"), 0);
        assert_eq!(entry.header().mode().expect("a number") & 0o6000, 0);
    }
}
