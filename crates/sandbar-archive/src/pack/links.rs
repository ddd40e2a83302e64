use std::collections::HashMap;

/// Most bytes that are remembered of files with several names: what comes after is packed as files of their own.
const MAX_REMEMBERED: usize = 4 << 20;

/// The first names of files that have several.
#[derive(Debug, Default)]
pub(crate) struct Links {
    names: HashMap<(u64, u64), Box<[u8]>>,
    bytes: usize,
}

/// What to do with a file that has several names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen<'a> {
    /// It is the first one.
    First,
    /// Another name came before.
    Before(&'a [u8]),
    /// It can't be known.
    Forgotten,
}

impl Links {
    /// The file is met under this name.
    pub(crate) fn meet(&mut self, device: u64, inode: u64, path: &[u8]) -> Seen<'_> {
        let key = (device, inode);
        if self.names.contains_key(&key) {
            return Seen::Before(&self.names[&key]);
        }
        // The map keeps room for as much again.
        let size = path.len() + 2 * size_of::<((u64, u64), Box<[u8]>)>();
        if self.bytes + size > MAX_REMEMBERED {
            return Seen::Forgotten;
        }
        self.bytes += size;
        self.names.insert(key, path.into());
        Seen::First
    }
}
