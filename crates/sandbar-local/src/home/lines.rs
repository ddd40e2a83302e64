//! Logs of a sandbox that grow by lines, in two files of bounded size: one that grows, and the one before it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{Mode, OFlags, openat};

use super::Folder;
use crate::error::found;

/// How often the files may be put aside under a reader that opens them.
const ATTEMPTS: usize = 3;

/// Where such a log is.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineLog {
    /// The file that grows.
    pub(super) name: &'static str,
    /// The one before it.
    pub(super) old: &'static str,
    /// Size at which a file is put aside, in bytes; one is never twice as long.
    pub(super) max_file: u64,
}

impl LineLog {
    /// Opens one of the files; `None` means that there is positively none.
    pub(super) fn open_found(folder: &Folder, name: &str) -> rustix::io::Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(found(openat(folder, name, flags, Mode::empty()))?.map(File::from))
    }
}

/// Reads such a log from its beginning, and what is added to it, each line once.
#[derive(Debug)]
pub(super) struct LineReader {
    log: LineLog,
    file: Option<File>,
    /// Bytes of a line that is not whole yet.
    rest: Vec<u8>,
}

impl LineReader {
    /// A reader that has read nothing yet.
    pub(super) fn new(log: LineLog) -> Self {
        Self { log, file: None, rest: Vec::new() }
    }

    /// Gives `each` the lines that are there and were not read yet, without their ends.
    pub(super) fn read(&mut self, folder: &Folder, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        if self.file.is_none() {
            self.begin(folder, &mut each)?;
        }
        while let Some(mut file) = self.file.take() {
            self.take_from(&mut file, &mut each)?;
            let read = inode(&file)?;
            match LineLog::open_found(folder, self.log.name)? {
                Some(now) if inode(&now)? != read => {
                    // It was put aside: what came between the reading and that is read now.
                    self.take_from(&mut file, &mut each)?;
                    self.rest.clear();
                    self.file = Some(now);
                }
                _ => {
                    self.file = Some(file);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Reads the older file and opens the present one.
    fn begin(&mut self, folder: &Folder, each: &mut impl FnMut(&[u8])) -> io::Result<()> {
        for attempt in 1.. {
            let old = LineLog::open_found(folder, self.log.old)?;
            let Some(now) = LineLog::open_found(folder, self.log.name)? else { return Ok(()) };
            let before = old.as_ref().map(inode).transpose()?;
            let mut older = Vec::new();
            if let Some(mut old) = old {
                (&mut old).take(self.log.max_file * 2).read_to_end(&mut older)?;
            }
            let after = LineLog::open_found(folder, self.log.old)?.as_ref().map(inode).transpose()?;
            if before == after || attempt >= ATTEMPTS {
                self.take(older, each);
                self.rest.clear();
                self.file = Some(now);
                return Ok(());
            }
        }
        Ok(())
    }

    fn take_from(&mut self, file: &mut File, each: &mut impl FnMut(&[u8])) -> io::Result<()> {
        let mut bytes = std::mem::take(&mut self.rest);
        file.take(self.log.max_file * 2).read_to_end(&mut bytes)?;
        self.take(bytes, each);
        Ok(())
    }

    fn take(&mut self, mut bytes: Vec<u8>, each: &mut impl FnMut(&[u8])) {
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.rest = bytes.split_off(whole);
        bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).for_each(each);
    }
}

fn inode(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.ino())
}
