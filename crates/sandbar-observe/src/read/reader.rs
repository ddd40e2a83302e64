use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Line;
use crate::log::{MAX_KEEP, MAX_LINE, Shared, is_in_place, older};

/// How long to wait for the right to look where the files are: writers have it for microseconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the files may change places while they are looked for.
const ATTEMPTS: usize = 64;

/// Reads the record from its oldest line on.
///
/// At the end [`AuditReader::next_line`] answers `None`, and may be asked again for what was written since.
#[derive(Debug)]
pub struct AuditReader {
    path: PathBuf,
    /// The file that is read, then those that follow it.
    files: VecDeque<BufReader<File>>,
    partial: Vec<u8>,
    /// Bytes of a line that is too long to be one.
    dropped: usize,
    gap: bool,
}

impl AuditReader {
    /// Opens all files that there are. `NotFound` is the error where there is no record at all.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let files = snapshot(&path)?;
        if files.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "there is no audit record"));
        }
        let files = files.into_iter().map(BufReader::new).collect();
        Ok(Self { path, files, partial: Vec::new(), dropped: 0, gap: false })
    }

    /// The next whole line; `None` at the present end.
    pub fn next_line(&mut self) -> io::Result<Option<Line>> {
        loop {
            if std::mem::take(&mut self.gap) {
                return Ok(Some(Line::Gap));
            }
            let Some(file) = self.files.front_mut() else { return Ok(None) };
            let room = u64::try_from(MAX_LINE - self.partial.len().min(MAX_LINE - 1)).unwrap_or(u64::MAX);
            let got = file.by_ref().take(room).read_until(b'\n', &mut self.partial)?;
            if self.partial.last() == Some(&b'\n') {
                self.partial.pop();
                let dropped = std::mem::take(&mut self.dropped);
                let text = std::mem::take(&mut self.partial);
                let line =
                    if dropped > 0 { Some(Line::Torn(dropped + text.len())) } else { Line::parse(&text) };
                match line {
                    Some(line) => return Ok(Some(line)),
                    None => continue,
                }
            }
            if self.partial.len() >= MAX_LINE {
                self.dropped += self.partial.len();
                self.partial.clear();
            } else if got == 0 {
                if self.files.len() == 1 && !self.find_more()? {
                    return Ok(None);
                }
                // Nobody writes to an older file any more, but somebody may have before it was one.
                if self.files.len() > 1
                    && let Some(line) = self.next_file()?
                {
                    return Ok(Some(line));
                }
            }
        }
    }

    /// What stands behind the last whole line, for whoever does not want to wait for the rest of it.
    pub fn torn_end(&mut self) -> Option<Line> {
        let bytes = std::mem::take(&mut self.partial).len() + std::mem::take(&mut self.dropped);
        (bytes > 0).then_some(Line::Torn(bytes))
    }

    /// Goes on to the next file, once nothing more is in the present one.
    fn next_file(&mut self) -> io::Result<Option<Line>> {
        if let Some(file) = self.files.front_mut()
            && !file.fill_buf()?.is_empty()
        {
            return Ok(None);
        }
        self.files.pop_front();
        Ok(self.torn_end())
    }

    /// Looks for files behind the last one; whether there are some.
    fn find_more(&mut self) -> io::Result<bool> {
        let Some(last) = self.files.back().map(BufReader::get_ref) else { return Ok(false) };
        if is_in_place(last, &self.path)? {
            return Ok(false);
        }
        let last = identity(last)?;
        let mut files = snapshot(&self.path)?;
        let position =
            files.iter().map(identity).collect::<io::Result<Vec<_>>>()?.iter().position(|id| *id == last);
        match position {
            Some(position) => drop(files.drain(..=position)),
            // It is gone, and what else is gone with it nobody knows.
            None => self.gap = true,
        }
        let found = !files.is_empty();
        self.files.extend(files.into_iter().map(BufReader::new));
        Ok(found)
    }
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|meta| (meta.dev(), meta.ino()))
}

/// All files, oldest first, none moved meanwhile.
fn snapshot(path: &Path) -> io::Result<Vec<File>> {
    let until = Instant::now() + PATIENCE;
    for _ in 0..ATTEMPTS {
        let newest = open(path)?;
        // Without a newest file nobody moves any: it was just moved, and the next writer makes one.
        let lock = newest.as_ref().map(|file| Shared::take(file, until)).transpose()?;
        if let Some(file) = &newest
            && !is_in_place(file, path)?
        {
            continue;
        }
        let mut files = Vec::new();
        for number in 1..=MAX_KEEP {
            match open(&older(path, number))? {
                Some(file) => files.push(file),
                None => break,
            }
        }
        files.reverse();
        drop(lock);
        // One that came meanwhile will be found by the next look.
        files.extend(newest);
        return Ok(files);
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "its files change places all the time"))
}

fn open(path: &Path) -> io::Result<Option<File>> {
    let mut options = File::options();
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    match options.read(true).custom_flags(flags.bits().cast_signed()).open(path) {
        Ok(file) if file.metadata()?.is_file() => Ok(Some(file)),
        Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(cause),
    }
}
