use std::collections::HashSet;
use std::io;

use bytes::Bytes;

use crate::tar::{END, Kind, Member, encode, padding};
use crate::transfer::landing::ROOT;
use crate::transfer::{MAX_MEMBERS, MAX_NAMES, too_many_names};

/// About how many bytes go on at once.
const CHUNK: usize = 256 * 1024;

/// A tree on its way from one sandbox to another. What the first sends is hostile to the second as well: every member is taken apart and written
/// anew, none lies outside of what was asked for, and none goes through a link that came before it.
#[derive(Debug)]
pub(super) struct Passage {
    /// The name that every member has to start with.
    root: Vec<u8>,
    folders: HashSet<Vec<u8>>,
    links: HashSet<Vec<u8>>,
    name_bytes: usize,
    members: u64,
    /// What is to go on.
    chunk: Vec<u8>,
    /// Content of the last file that is still to come, and what follows it.
    left: u64,
    padding: usize,
}

impl Passage {
    pub(super) fn new(root: &[u8]) -> Self {
        Self {
            root: root.to_vec(),
            folders: HashSet::new(),
            links: HashSet::new(),
            name_bytes: 0,
            members: 0,
            chunk: Vec::with_capacity(CHUNK),
            left: 0,
            padding: 0,
        }
    }

    pub(super) fn member(&mut self, member: &Member) -> io::Result<()> {
        self.end_file()?;
        self.members += 1;
        if self.members > MAX_MEMBERS {
            return Err(hostile(&member.path, "it is one of more than 4,000,000"));
        }
        let path = self.inside(&member.path)?;
        if self.links.contains(&path) || (self.folders.contains(&path) && member.kind != Kind::Directory) {
            return Err(hostile(&member.path, "it takes the place of another"));
        }
        let kind = match &member.kind {
            Kind::File(size) => {
                (self.left, self.padding) = (*size, padding(*size));
                Kind::File(*size)
            }
            Kind::Directory => {
                self.remember(path.clone(), Set::Folders)?;
                Kind::Directory
            }
            Kind::Symlink(target) => {
                self.remember(path.clone(), Set::Links)?;
                Kind::Symlink(target.clone())
            }
            Kind::HardLink(target) => {
                let target = self.inside(target)?;
                if self.links.contains(&target) {
                    self.remember(path.clone(), Set::Links)?;
                }
                Kind::HardLink(target)
            }
            Kind::Other(_) => {
                return Err(hostile(&member.path, "it is not a file, folder or link, which can't be copied"));
            }
        };
        // Privilege bits stay where they are.
        encode(&Member { path, mode: member.mode & 0o777, mtime: member.mtime, kind }, &mut self.chunk);
        Ok(())
    }

    pub(super) fn data(&mut self, data: &[u8]) -> io::Result<()> {
        self.left = self
            .left
            .checked_sub(data.len() as u64)
            .ok_or_else(|| io::Error::other("the archive has content without a file"))?;
        self.chunk.extend_from_slice(data);
        Ok(())
    }

    /// What is to go on, if it is worth it.
    pub(super) fn full(&mut self) -> Option<Bytes> {
        (self.chunk.len() >= CHUNK)
            .then(|| std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK)).into())
    }

    /// What is left to go on, with the end of the archive.
    pub(super) fn finish(mut self) -> io::Result<Bytes> {
        self.end_file()?;
        if self.members == 0 {
            return Err(io::Error::other("the sandbox sent nothing"));
        }
        self.chunk.extend_from_slice(&END);
        Ok(self.chunk.into())
    }

    fn end_file(&mut self) -> io::Result<()> {
        if self.left > 0 {
            return Err(io::Error::other("a file is cut short"));
        }
        self.chunk.resize(self.chunk.len() + std::mem::take(&mut self.padding), 0);
        Ok(())
    }

    /// A member's path under the name that it has on the other side. All that is above it came before, as folders.
    fn inside(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        let mut segments = path.split(|byte| *byte == b'/').filter(|segment| !matches!(*segment, b"" | b"."));
        if path.starts_with(b"/") || segments.next() != Some(&self.root) {
            return Err(hostile(path, "it is outside of what was asked for"));
        }
        let mut inside = ROOT.as_bytes().to_vec();
        for segment in segments {
            if segment == b".." || segment.contains(&0) {
                return Err(hostile(path, "it leaves what was asked for"));
            }
            if !self.folders.contains(&inside) {
                return Err(hostile(path, "what holds it is not a folder that came before"));
            }
            inside.push(b'/');
            inside.extend_from_slice(segment);
        }
        Ok(inside)
    }

    fn remember(&mut self, path: Vec<u8>, set: Set) -> io::Result<()> {
        self.name_bytes += path.len();
        if self.name_bytes > MAX_NAMES {
            return Err(too_many_names());
        }
        match set {
            Set::Folders => self.folders.insert(path),
            Set::Links => self.links.insert(path),
        };
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum Set {
    Folders,
    Links,
}

fn hostile(path: &[u8], why: &str) -> io::Error {
    io::Error::other(format!("member `{}`: {why}", path.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tar::{Decoder, Item};

    fn member(path: &str, kind: Kind) -> Member {
        Member { path: path.into(), mode: 0o4755, mtime: 5, kind }
    }

    fn folder(path: &str) -> Member {
        member(path, Kind::Directory)
    }

    fn link(path: &str, target: &str) -> Member {
        member(path, Kind::Symlink(target.into()))
    }

    #[test]
    fn a_tree_passes_under_another_name_without_privilege_bits() {
        let mut passage = Passage::new(b"src");
        passage.member(&folder("./src/")).unwrap();
        passage.member(&member("./src/tool", Kind::File(3))).unwrap();
        passage.data(b"abc").unwrap();
        passage.member(&link("src/away", "/etc/passwd")).unwrap();
        passage.member(&member("src/same", Kind::HardLink(b"src/tool".to_vec()))).unwrap();
        let mut decoder = Decoder::default();
        decoder.push(passage.finish().unwrap());
        let mut found = Vec::new();
        while let Some(item) = decoder.next().unwrap() {
            found.push(item);
        }
        let expect = |path: &str, kind| Item::Member(Member { mode: 0o755, ..member(path, kind) });
        assert_eq!(
            found,
            [
                expect("copy", Kind::Directory),
                expect("copy/tool", Kind::File(3)),
                Item::Data(Bytes::from_static(b"abc")),
                expect("copy/away", Kind::Symlink(b"/etc/passwd".to_vec())),
                expect("copy/same", Kind::HardLink(b"copy/tool".to_vec())),
            ]
        );
        decoder.finish().unwrap();
    }

    #[test]
    fn what_would_leave_the_copy_is_refused() {
        let top = || folder("src");
        for (members, part) in [
            (vec![folder("/src")], "outside"),
            (vec![folder("other")], "outside"),
            (vec![top(), member("src/../x", Kind::File(0))], "leaves"),
            (vec![top(), member("src/a/b", Kind::File(0))], "not a folder that came before"),
            (vec![top(), link("src/l", "/"), member("src/l/b", Kind::File(0))], "not a folder"),
            (vec![link("src", "/"), member("src/b", Kind::File(0))], "not a folder"),
            (vec![top(), link("src/l", "/"), folder("src/l")], "takes the place"),
            (vec![top(), folder("src/d"), link("src/d", "/")], "takes the place"),
            (vec![top(), link("src/l", "/"), member("src/l", Kind::File(0))], "takes the place"),
            (vec![top(), member("src/h", Kind::HardLink(b"/etc/passwd".to_vec()))], "outside"),
            (vec![top(), member("src/h", Kind::HardLink(b"src/../../x".to_vec()))], "leaves"),
            (
                vec![
                    top(),
                    link("src/l", "/x"),
                    member("src/h", Kind::HardLink(b"src/l".to_vec())),
                    member("src/h", Kind::File(0)),
                ],
                "takes the place",
            ),
            (vec![top(), member("src/p", Kind::Other(b'6'))], "can't be copied"),
            (vec![top(), member("src/f", Kind::File(3)), top()], "cut short"),
        ] {
            let mut passage = Passage::new(b"src");
            let (last, first) = members.split_last().unwrap();
            for member in first {
                passage.member(member).unwrap();
            }
            let error = passage.member(last).unwrap_err().to_string();
            assert!(error.contains(part), "{last:?}: {error}");
        }
        let mut passage = Passage::new(b"src");
        passage.member(&member("src", Kind::File(3))).unwrap();
        assert!(passage.data(b"four").unwrap_err().to_string().contains("without a file"));
        assert!(Passage::new(b"src").finish().is_err());
    }
}
