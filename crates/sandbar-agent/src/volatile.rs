//! What a sandbox has beside its files and processes: file systems in memory, objects of System V and message queues. They go with the agent, so one that is to be replaced
//! looks whether there is anything of it that was not there when it began.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Folders whose content is in memory.
const FOLDERS: [&str; 3] = ["/run", "/dev/shm", "/dev/mqueue"];
/// Files that each agent has anew.
const FILES: [&str; 3] = ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"];
/// The agent's own part of them.
const OWN: &str = "/run/sandbar";
/// Lists of objects, with a line above them.
const LISTS: [&str; 3] = ["/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg"];
/// More entries than a sandbox begins with by far: whoever has so many has something of its own.
const MOST: usize = 256;

/// What there is; `None` is too much, or what can't be looked at.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Volatile(Option<Seen>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    entries: Vec<Entry>,
    objects: usize,
}

/// Where it is, which it is, how long it is and when it was written last. Of a folder only the first two: what is in it is looked at itself.
#[derive(Debug, PartialEq, Eq)]
struct Entry(PathBuf, u64, u64, i64, i64);

impl Volatile {
    pub(crate) fn look() -> Self {
        Self(look().ok().flatten())
    }

    /// Whether all is as at the time of that look, as far as anybody can tell.
    pub(crate) fn is_as(&self, before: &Self) -> bool {
        self.0.is_some() && self == before
    }
}

fn look() -> io::Result<Option<Seen>> {
    let mut entries = Vec::new();
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(PathBuf::from).collect();
    while let Some(folder) = folders.pop() {
        let listed = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            listed => listed?,
        };
        for entry in listed {
            let path = entry?.path();
            if path == Path::new(OWN) {
                continue;
            }
            if entries.len() == MOST {
                return Ok(None);
            }
            if let Some((entry, is_folder)) = seen(&path)? {
                if is_folder {
                    folders.push(path);
                }
                entries.push(entry);
            }
        }
    }
    for file in FILES {
        entries.extend(seen(Path::new(file))?.map(|(entry, _)| entry));
    }
    entries.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let mut objects = 0;
    for list in LISTS {
        match fs::read_to_string(list) {
            Ok(text) => objects += text.lines().skip(1).count(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(Seen { entries, objects }))
}

/// It, and whether it is a folder; `None` where it is gone.
fn seen(path: &Path) -> io::Result<Option<(Entry, bool)>> {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => Ok(Some((Entry(path.to_owned(), meta.ino(), 0, 0, 0), true))),
        Ok(meta) => {
            let entry = Entry(path.to_owned(), meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec());
            Ok(Some((entry, false)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_told_is_not_the_same() {
        assert!(!Volatile(None).is_as(&Volatile(None)));
        assert!(Volatile(Some(Seen::default())).is_as(&Volatile(Some(Seen::default()))));
        let more = Seen { entries: Vec::new(), objects: 1 };
        assert!(!Volatile(Some(more)).is_as(&Volatile(Some(Seen::default()))));
    }
}
