use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, Stat, XattrFlags, fsetxattr, linkat, makedev, mkdirat, mknodat};
use rustix::io::Errno;
use sandbar_wire::envd::is_archive_staging;

use super::file::Copier;
use super::{
    MAX_DEPTH, MAX_LINKS, OPAQUE, each_entry, is_opaque, is_whiteout, joined, kind, open_folder, reopen,
    too_deep,
};
use crate::worker::job::{Failure, Progress, Report};
use crate::worker::serve::Teller;

/// Makes in the empty folder `into` what `layers`, the lowest first, mean together. All belongs to `owner`, if there is one.
pub(in crate::worker) fn merge(
    layers: &[OwnedFd],
    into: &OwnedFd,
    keep_whiteouts: bool,
    owner: Option<u32>,
    teller: &mut Teller<'_>,
) -> Result<Report, Failure> {
    let into = reopen(into)?;
    let mut sources = Vec::with_capacity(layers.len());
    let mut hides = false;
    for (layer, folder) in layers.iter().enumerate().rev() {
        let dir = reopen(folder)?;
        hides = is_opaque(&dir, b"")?;
        sources.push(Source { layer, dir });
        if hides {
            break;
        }
    }
    let mut merge = Merge {
        into: &into,
        keep_whiteouts,
        teller,
        copier: Copier::new(owner),
        links: HashMap::new(),
        report: Report::default(),
    };
    merge.folder(&sources, &into, &[], 0)?;
    merge.finish(&sources, &into, &[], hides)?;
    Ok(merge.report)
}

/// A folder of one layer.
struct Source {
    /// Its number, from the lowest.
    layer: usize,
    dir: OwnedFd,
}

struct Merge<'a, 'b> {
    into: &'a OwnedFd,
    keep_whiteouts: bool,
    teller: &'a mut Teller<'b>,
    copier: Copier,
    /// The first name of files that have several, by layer, device and inode.
    links: HashMap<(usize, u64, u64), CString>,
    report: Report,
}

/// What a name means, as far as one looked from the top.
enum Found {
    Gone,
    /// Nothing that could be merged: in the source of this number.
    Other(usize, Box<Stat>),
    Folder {
        /// The sources that have it, the topmost first.
        sources: Vec<usize>,
        /// Whether something hides what is below those.
        is_closed: bool,
    },
}

impl Merge<'_, '_> {
    fn folder(
        &mut self,
        sources: &[Source],
        into: &OwnedFd,
        path: &[u8],
        depth: usize,
    ) -> Result<(), Failure> {
        if depth > MAX_DEPTH {
            return Err(too_deep(path));
        }
        for (name, found) in look(sources, path)? {
            let whole = joined(path, &name);
            match found {
                // What an import puts together there is not the sandbox' yet, and would be nobody's in a copy.
                Found::Folder { .. } if is_archive_staging(name.to_bytes()) => {}
                Found::Gone if self.keep_whiteouts => {
                    mknodat(into, &name, FileType::CharacterDevice, Mode::empty(), makedev(0, 0))
                        .map_err(|cause| Failure::io("mark as gone", &whole, cause))?;
                    self.count(0);
                }
                Found::Gone => {}
                Found::Other(source, stat) => self.other(&sources[source], &name, &stat, into, &whole)?,
                Found::Folder { sources: having, is_closed } => {
                    let mut merged = Vec::with_capacity(having.len());
                    let mut hides = is_closed;
                    for number in having {
                        let Source { layer, dir } = &sources[number];
                        let dir =
                            open_folder(dir, &name).map_err(|cause| Failure::io("open", &whole, cause))?;
                        let is_opaque = is_opaque(&dir, &whole)?;
                        merged.push(Source { layer: *layer, dir });
                        if is_opaque {
                            hides = true;
                            break;
                        }
                    }
                    let made = mkdirat(into, &name, Mode::RWXU).and_then(|()| open_folder(into, &name));
                    let made = made.map_err(|cause| Failure::io("make", &whole, cause))?;
                    self.count(0);
                    self.folder(&merged, &made, &whole, depth + 1)?;
                    self.finish(&merged, &made, &whole, hides)?;
                }
            }
        }
        Ok(())
    }

    /// The topmost folder decides on rights and times.
    fn finish(
        &mut self,
        sources: &[Source],
        into: &OwnedFd,
        path: &[u8],
        hides: bool,
    ) -> Result<(), Failure> {
        if hides && self.keep_whiteouts {
            fsetxattr(into, OPAQUE, b"y", XattrFlags::empty())
                .map_err(|cause| Failure::io("set an attribute of", path, cause))?;
        }
        match sources.first() {
            Some(source) => self.copier.finish_folder(&source.dir, into, path),
            None => Ok(()),
        }
    }

    fn other(
        &mut self,
        source: &Source,
        name: &CStr,
        stat: &Stat,
        into: &OwnedFd,
        path: &[u8],
    ) -> Result<(), Failure> {
        let from = (&source.dir, name);
        let is_file = match kind(stat) {
            FileType::RegularFile => true,
            FileType::Symlink => false,
            _ => {
                self.report.skipped += 1;
                return Ok(());
            }
        };
        let key = (stat.st_nlink > 1).then_some((source.layer, stat.st_dev, stat.st_ino));
        if let Some(first) = key.and_then(|key| self.links.get(&key)) {
            match linkat(self.into, first, into, name, AtFlags::empty()) {
                Ok(()) => {
                    self.count(0);
                    return Ok(());
                }
                // The first name is too long for a path, or the file has as many as it may: it becomes a file of its own.
                Err(Errno::NAMETOOLONG | Errno::MLINK) => {}
                Err(cause) => return Err(Failure::io("link", path, cause)),
            }
        }
        if is_file {
            let (teller, report) = (&mut *self.teller, &self.report);
            let (entries, mut bytes) = (report.entries, report.bytes);
            let copied = self.copier.file(from, into, path, &mut |piece| {
                bytes += piece;
                teller.tell(Progress { entries, bytes });
            })?;
            if copied.shared {
                self.report.shared += copied.bytes;
            }
            self.count(copied.bytes);
        } else {
            self.copier.link(from, into, stat, path)?;
            self.count(0);
        }
        if let (Some(key), Ok(path)) = (key, CString::new(path))
            && self.links.len() < MAX_LINKS
        {
            self.links.insert(key, path);
        }
        Ok(())
    }

    fn count(&mut self, bytes: u64) {
        self.report.entries += 1;
        self.report.bytes += bytes;
        self.teller.tell(Progress { entries: self.report.entries, bytes: self.report.bytes });
    }
}

/// What the names of a folder mean, the topmost source first.
fn look(sources: &[Source], path: &[u8]) -> Result<BTreeMap<CString, Found>, Failure> {
    let mut names: BTreeMap<CString, Found> = BTreeMap::new();
    for (number, source) in sources.iter().enumerate() {
        each_entry(&source.dir, path, |name, stat| {
            let is_folder = kind(&stat) == FileType::Directory;
            match names.entry(name.to_owned()) {
                Entry::Vacant(place) => {
                    place.insert(if is_whiteout(&stat) {
                        Found::Gone
                    } else if is_folder {
                        Found::Folder { sources: vec![number], is_closed: false }
                    } else {
                        Found::Other(number, Box::new(stat))
                    });
                }
                Entry::Occupied(mut place) => match place.get_mut() {
                    Found::Folder { sources, is_closed: false } if is_folder => sources.push(number),
                    Found::Folder { is_closed, .. } => *is_closed = true,
                    Found::Gone | Found::Other(..) => {}
                },
            }
            Ok(())
        })?;
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::path::Path;

    use super::*;

    fn open(path: &Path) -> OwnedFd {
        std::fs::File::open(path).unwrap().into()
    }

    fn merged(layers: &[&Path], into: &Path, keep: bool) -> Report {
        let layers: Vec<OwnedFd> = layers.iter().map(|path| open(path)).collect();
        std::fs::create_dir(into).unwrap();
        merge(&layers, &open(into), keep, None, &mut Teller::new(&mut |_| {})).unwrap()
    }

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn gone(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let path = CString::new(path.to_str().unwrap()).unwrap();
        mknodat(rustix::fs::CWD, &path, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
    }

    fn hide(path: &Path) {
        std::fs::create_dir_all(path).unwrap();
        fsetxattr(open(path), OPAQUE, b"y", XattrFlags::empty()).unwrap();
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn layers_mean_together_what_their_overlay_shows() {
        let scratch = tempfile::tempdir().unwrap();
        let [low, mid, top] = ["low", "mid", "top"].map(|name| scratch.path().join(name));
        for (name, text) in [("a", "low"), ("b/x", "low"), ("c/old", "low"), ("d/old", "low"), ("e", "low")] {
            write(&low.join(name), text);
        }
        gone(&mid.join("a"));
        write(&mid.join("b/y"), "mid");
        hide(&mid.join("c"));
        write(&mid.join("c/new"), "mid");
        gone(&mid.join("d"));
        write(&mid.join("e/inner"), "mid");
        write(&top.join("a"), "top");
        gone(&top.join("b/x"));
        write(&top.join("d/new"), "top");
        let all = scratch.path().join("all");
        let report = merged(&[&low, &mid, &top], &all, false);
        assert_eq!(names(&all), ["a", "b", "c", "d", "e"]);
        assert_eq!(std::fs::read_to_string(all.join("a")).unwrap(), "top");
        assert_eq!(names(&all.join("b")), ["y"]);
        assert_eq!(names(&all.join("c")), ["new"]);
        assert_eq!(names(&all.join("d")), ["new"]);
        assert_eq!(names(&all.join("e")), ["inner"]);
        assert_eq!(report.bytes, 5 * 3);

        // What hides something below the lowest goes on to hide it.
        let kept = scratch.path().join("kept");
        merged(&[&mid, &top], &kept, true);
        assert!(is_whiteout(&rustix::fs::lstat(kept.join("b/x")).unwrap()));
        for (name, opaque) in [("b", false), ("c", true), ("d", true), ("e", false)] {
            assert_eq!(is_opaque(&open(&kept.join(name)), b"").unwrap(), opaque, "{name}");
        }
        let again = scratch.path().join("again");
        merged(&[&low, &kept], &again, false);
        assert_eq!(names(&again.join("d")), ["new"]);
    }

    #[test]
    fn a_copy_has_all_but_privileges() {
        let scratch = tempfile::tempdir().unwrap();
        let from = scratch.path().join("from");
        write(&from.join("dir/one"), "content");
        std::fs::hard_link(from.join("dir/one"), from.join("two")).unwrap();
        std::os::unix::fs::symlink("dir/one", from.join("link")).unwrap();
        write(&from.join("odd \n\u{e9}"), "");
        let sparse = std::fs::File::create(from.join("sparse")).unwrap();
        std::os::unix::fs::FileExt::write_at(&sparse, b"end", 64 << 20).unwrap();
        std::fs::set_permissions(from.join("dir/one"), std::fs::Permissions::from_mode(0o6755)).unwrap();
        std::fs::set_permissions(from.join("dir"), std::fs::Permissions::from_mode(0o3777)).unwrap();
        fsetxattr(open(&from.join("dir/one")), c"user.note", b"v", XattrFlags::empty()).unwrap();
        drop(std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap());
        let to = scratch.path().join("to");
        let report = merged(&[&from], &to, true);
        assert_eq!(report.skipped, 1);
        assert_eq!(names(&to), ["dir", "link", "odd \n\u{e9}", "sparse", "two"]);
        let (one, two) = (to.join("dir/one").metadata().unwrap(), to.join("two").metadata().unwrap());
        assert_eq!((one.ino(), one.mode() & 0o7777), (two.ino(), 0o755));
        let was = from.join("dir/one").metadata().unwrap();
        assert_eq!((one.mtime(), one.mtime_nsec()), (was.mtime(), was.mtime_nsec()));
        assert_eq!(to.join("dir").metadata().unwrap().mode() & 0o7777, 0o1777);
        let sparse = to.join("sparse").metadata().unwrap();
        assert!(sparse.len() == (64 << 20) + 3 && sparse.blocks() * 512 < 8 << 20, "{}", sparse.blocks());
        let mut value = [0; 4];
        assert_eq!(rustix::fs::fgetxattr(open(&to.join("two")), c"user.note", &mut value[..]), Ok(1));
        assert_eq!(report.bytes, 7 + (64 << 20) + 3);
    }

    #[test]
    fn a_tree_that_is_too_deep_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let from = scratch.path().join("from");
        std::fs::create_dir(&from).unwrap();
        let mut at = open(&from);
        for _ in 0..=MAX_DEPTH {
            mkdirat(&at, c"d", Mode::RWXU).unwrap();
            at = open_folder(&at, c"d").unwrap();
        }
        let into = scratch.path().join("to");
        std::fs::create_dir(&into).unwrap();
        let error =
            merge(&[open(&from)], &open(&into), true, None, &mut Teller::new(&mut |_| {})).unwrap_err();
        assert_eq!(error.kind, sandbar_core::ErrorKind::LimitExceeded);
    }
}
