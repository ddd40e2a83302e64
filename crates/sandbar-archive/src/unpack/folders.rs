use std::collections::BTreeMap;

use crate::ArchiveError;
use crate::rules::MAX_FOLDER_NAMES;

/// What a folder gets at the end: what is made in it later changes its time, and rights could keep its content out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late {
    pub(crate) mode: u16,
    pub(crate) mtime: (i64, u32),
}

/// The folders of an archive, in its order. Each name is held without what it shares with the one before, as there may be hundreds of thousands.
#[derive(Debug, Default)]
pub(crate) struct Folders {
    suffixes: Vec<u8>,
    entries: Vec<Entry>,
    last: Vec<u8>,
    /// Those whose rights keep their owner out: they are set after all others, innermost first.
    narrow: BTreeMap<Vec<u8>, u16>,
    narrow_bytes: usize,
}

#[derive(Debug)]
struct Entry {
    shared: u16,
    length: u16,
    late: Late,
}

/// Rights without which the owner can't work in a folder.
const WORKABLE: u16 = 0o700;

impl Folders {
    pub(crate) fn push(&mut self, path: &[u8], late: Late) -> Result<(), ArchiveError> {
        let shared = self.last.iter().zip(path).take_while(|(one, other)| one == other).count();
        let suffix = &path[shared..];
        let (Ok(shared_length), Ok(length)) = (u16::try_from(shared), u16::try_from(suffix.len())) else {
            return Err(ArchiveError::limit("its name is too long"));
        };
        if late.mode & WORKABLE == WORKABLE {
            self.narrow.remove(path);
        } else {
            self.narrow_bytes += path.len() + size_of::<(Vec<u8>, u16)>();
            self.narrow.insert(path.to_vec(), late.mode);
        }
        self.suffixes.extend_from_slice(suffix);
        self.entries.push(Entry { shared: shared_length, length, late });
        self.last.truncate(shared);
        self.last.extend_from_slice(suffix);
        if self.suffixes.len() + self.entries.len() * size_of::<Entry>() + self.narrow_bytes
            > MAX_FOLDER_NAMES
        {
            let text = format!("the names of its folders take more than {MAX_FOLDER_NAMES} bytes");
            return Err(ArchiveError::limit(text));
        }
        Ok(())
    }

    /// Every folder with what it gets; rights that keep its owner out are not among it.
    pub(crate) fn each(
        &self,
        mut visit: impl FnMut(&[u8], Late) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        let mut path = Vec::new();
        let mut rest = &*self.suffixes;
        for entry in &self.entries {
            let (suffix, after) = rest.split_at(entry.length.into());
            rest = after;
            path.truncate(entry.shared.into());
            path.extend_from_slice(suffix);
            let mode = entry.late.mode | WORKABLE;
            visit(&path, Late { mode, ..entry.late })?;
        }
        Ok(())
    }

    /// The folders whose rights keep their owner out, innermost first.
    pub(crate) fn narrow(&self) -> impl Iterator<Item = (&[u8], u16)> {
        self.narrow.iter().rev().map(|(path, mode)| (&**path, *mode))
    }
}
