use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use sha2::{Digest as _, Sha256};

use super::{
    MAX_DEPTH, MAX_LINKS, each_entry, is_opaque, is_whiteout, joined, kind, open_folder, reopen, size_of,
    too_deep, xattrs,
};
use crate::worker::job::{Failure, Progress, Report};
use crate::worker::serve::{Teller, hex};

/// What is read at once, in bytes.
const CHUNK: usize = 256 * 1024;

/// Counts a tree, and says in one number what it holds.
///
/// The digest is over a list of all entries in the order of their names: path, kind, mode, owners, size and content or target, attributes. Times are not in it:
/// what was unpacked twice is the same.
pub(in crate::worker) fn measure(
    folder: &OwnedFd,
    digest: bool,
    teller: &mut Teller<'_>,
) -> Result<Report, Failure> {
    let folder = reopen(folder)?;
    let mut measure = Measure {
        teller,
        manifest: digest.then(Sha256::new),
        links: HashMap::new(),
        report: Report::default(),
    };
    let stat = fstat(&folder).map_err(|cause| Failure::io("look at", b".", cause))?;
    measure.head(b"d", &[], &stat);
    measure.attributes(&folder, &[])?;
    measure.folder(&folder, &[], 0)?;
    measure.report.digest = measure.manifest.map(hex);
    Ok(measure.report)
}

struct Measure<'a, 'b> {
    teller: &'a mut Teller<'b>,
    manifest: Option<Sha256>,
    /// The first path of files that have several names.
    links: HashMap<(u64, u64), Vec<u8>>,
    report: Report,
}

impl Measure<'_, '_> {
    fn folder(&mut self, folder: &OwnedFd, path: &[u8], depth: usize) -> Result<(), Failure> {
        if depth > MAX_DEPTH {
            return Err(too_deep(path));
        }
        let mut names = BTreeMap::new();
        each_entry(folder, path, |name, stat| {
            names.insert(name.to_owned(), stat);
            Ok(())
        })?;
        for (name, stat) in names {
            let whole = joined(path, &name);
            self.report.entries += 1;
            match kind(&stat) {
                FileType::Directory => {
                    let inner =
                        open_folder(folder, &name).map_err(|cause| Failure::io("open", &whole, cause))?;
                    self.head(b"d", &whole, &stat);
                    self.attributes(&inner, &whole)?;
                    self.folder(&inner, &whole, depth + 1)?;
                }
                FileType::RegularFile => self.file(folder, &name, &stat, &whole)?,
                FileType::Symlink if self.manifest.is_some() => {
                    let target = readlinkat(folder, &name, Vec::new())
                        .map_err(|cause| Failure::io("read", &whole, cause))?;
                    self.head(b"l", &whole, &stat);
                    self.put(target.to_bytes());
                }
                FileType::Symlink => {}
                _ if is_whiteout(&stat) => {
                    self.put(b"w");
                    self.put(&whole);
                }
                _ => self.report.skipped += 1,
            }
            self.teller.tell(Progress { entries: self.report.entries, bytes: self.report.bytes });
        }
        Ok(())
    }

    fn file(&mut self, folder: &OwnedFd, name: &CStr, stat: &Stat, path: &[u8]) -> Result<(), Failure> {
        if stat.st_nlink > 1 {
            let key = (stat.st_dev, stat.st_ino);
            if let Some(first) = self.links.get(&key).cloned() {
                self.put(b"h");
                self.put(path);
                self.put(&first);
                return Ok(());
            }
            if self.links.len() < MAX_LINKS {
                self.links.insert(key, path.to_vec());
            }
        }
        self.report.bytes += size_of(stat);
        if self.manifest.is_none() {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file =
            openat(folder, name, flags, Mode::empty()).map_err(|cause| Failure::io("open", path, cause))?;
        self.head(b"f", path, stat);
        let mut content = Sha256::new();
        let mut chunk = vec![0; CHUNK.min(usize::try_from(size_of(stat)).unwrap_or(CHUNK).max(1))];
        loop {
            let read = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut chunk[..]))
                .map_err(|cause| Failure::io("read", path, cause))?;
            if read == 0 {
                break;
            }
            content.update(&chunk[..read]);
            // A large file is a sign of life, too.
            self.teller.tell(Progress { entries: self.report.entries, bytes: self.report.bytes });
        }
        self.put(&content.finalize());
        self.attributes(&file, path)
    }

    fn attributes(&mut self, file: &OwnedFd, path: &[u8]) -> Result<(), Failure> {
        if self.manifest.is_none() {
            return Ok(());
        }
        if kind(&fstat(file).map_err(|cause| Failure::io("look at", path, cause))?) == FileType::Directory
            && is_opaque(file, path)?
        {
            self.put(b"opaque");
        }
        let all = xattrs(file, path)?;
        self.put(&u64::try_from(all.len()).unwrap_or(u64::MAX).to_le_bytes());
        for (name, value) in all {
            self.put(name.to_bytes());
            self.put(&value);
        }
        Ok(())
    }

    fn head(&mut self, kind: &[u8], path: &[u8], stat: &Stat) {
        self.put(kind);
        self.put(path);
        for number in [stat.st_mode & 0o7777, stat.st_uid, stat.st_gid] {
            self.put(&number.to_le_bytes());
        }
        if kind == b"f" {
            self.put(&size_of(stat).to_le_bytes());
        }
    }

    /// Each with its length, so that nothing can pass for something else.
    fn put(&mut self, bytes: &[u8]) {
        if let Some(manifest) = &mut self.manifest {
            manifest.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
            manifest.update(bytes);
        }
    }
}
