//! What the gateway of a sandbox decided, as it stands on disk: one JSON object a line, in two files of bounded size.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{Mode, OFlags, openat, renameat};
use sandbar_core::Decision;

use super::Folder;
use crate::error::found;

/// The file that grows.
const LOG: &str = "egress.jsonl";
/// The one before it.
const OLD_LOG: &str = "egress.jsonl.1";
/// Size at which a file is put aside, in bytes: some ten thousand decisions. Twice this is the most that a sandbox' decisions take.
const MAX_FILE: u64 = 4 << 20;
/// How often the files may be put aside under a reader that opens them.
const ATTEMPTS: usize = 3;

/// The writing end, which only the holder of the sandbox' lock has.
#[derive(Debug)]
pub(crate) struct DecisionLog {
    file: File,
    size: u64,
}

impl DecisionLog {
    /// Opens the log, and makes it where there is none. A line that a killed writer left unfinished is ended, and readers pass it over.
    pub(crate) fn open(folder: &Folder) -> io::Result<Self> {
        let mut file = open(folder)?;
        let mut size = file.metadata()?.len();
        if size > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != [b'\n'] {
                file.write_all(b"\n")?;
                size += 1;
            }
        }
        Ok(Self { file, size })
    }

    /// Adds decisions: all of them or, after an error, none.
    pub(crate) fn append(&mut self, folder: &Folder, decisions: &[Decision]) -> io::Result<()> {
        let mut text = Vec::new();
        for decision in decisions {
            serde_json::to_writer(&mut text, decision)?;
            text.push(b'\n');
        }
        if self.size >= MAX_FILE {
            renameat(folder, LOG, folder, OLD_LOG)?;
            self.file = open(folder)?;
            self.size = 0;
        }
        if let Err(cause) = self.file.write_all(&text) {
            // No half of a line; if that does not work either, readers pass it over.
            let _ = self.file.set_len(self.size);
            return Err(cause);
        }
        self.size += text.len() as u64;
        Ok(())
    }
}

/// Reads the log from its beginning, and what is added to it.
#[derive(Debug, Default)]
pub(crate) struct DecisionReader {
    file: Option<File>,
    /// Bytes of a line that is not whole yet.
    rest: Vec<u8>,
}

impl DecisionReader {
    /// What is there that was not read yet.
    pub(crate) fn read(&mut self, folder: &Folder) -> io::Result<Vec<Decision>> {
        let mut decisions = Vec::new();
        if self.file.is_none() {
            self.begin(folder, &mut decisions)?;
        }
        while let Some(mut file) = self.file.take() {
            self.take_from(&mut file, &mut decisions)?;
            let inode = file.metadata()?.ino();
            match open_found(folder, LOG)? {
                Some(now) if now.metadata()?.ino() != inode => {
                    // It was put aside: what came between the reading and that is read now.
                    self.take_from(&mut file, &mut decisions)?;
                    self.rest.clear();
                    self.file = Some(now);
                }
                _ => {
                    self.file = Some(file);
                    break;
                }
            }
        }
        Ok(decisions)
    }

    /// Reads the older file and opens the present one.
    fn begin(&mut self, folder: &Folder, decisions: &mut Vec<Decision>) -> io::Result<()> {
        for attempt in 1.. {
            let old = open_found(folder, OLD_LOG)?;
            let Some(now) = open_found(folder, LOG)? else { return Ok(()) };
            let before = old.as_ref().map(inode).transpose()?;
            let mut older = Vec::new();
            if let Some(mut old) = old {
                (&mut old).take(MAX_FILE * 2).read_to_end(&mut older)?;
            }
            let after = open_found(folder, OLD_LOG)?.as_ref().map(inode).transpose()?;
            if before == after || attempt >= ATTEMPTS {
                self.take(older, decisions);
                self.rest.clear();
                self.file = Some(now);
                return Ok(());
            }
        }
        Ok(())
    }

    fn take_from(&mut self, file: &mut File, decisions: &mut Vec<Decision>) -> io::Result<()> {
        let mut bytes = std::mem::take(&mut self.rest);
        file.take(MAX_FILE * 2).read_to_end(&mut bytes)?;
        self.take(bytes, decisions);
        Ok(())
    }

    fn take(&mut self, mut bytes: Vec<u8>, decisions: &mut Vec<Decision>) {
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.rest = bytes.split_off(whole);
        let lines = bytes.split(|byte| *byte == b'\n');
        decisions.extend(lines.filter_map(|line| serde_json::from_slice::<Decision>(line).ok()));
    }
}

fn inode(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.ino())
}

fn open(folder: &Folder) -> rustix::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat(folder, LOG, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

fn open_found(folder: &Folder, name: &str) -> rustix::io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(found(openat(folder, name, flags, Mode::empty()))?.map(File::from))
}

#[cfg(test)]
mod tests {
    use sandbar_core::{DecisionKind, DecisionReason, Verdict};

    use super::*;
    use crate::home::{Home, now};

    fn decision(port: u16) -> Decision {
        Decision {
            at: now(),
            kind: DecisionKind::Tcp,
            verdict: Verdict::Denied,
            reason: DecisionReason::NotAllowed,
            name: Some("a.test".to_owned()),
            address: None,
            port: Some(port),
            rule: None,
            detail: Some("x".repeat(1000)),
            bytes_out: None,
            bytes_in: None,
            repeated: 0,
        }
    }

    fn ports(decisions: &[Decision]) -> Vec<u16> {
        decisions.iter().filter_map(|decision| decision.port).collect()
    }

    #[test]
    fn what_is_written_is_read_once_across_files_and_torn_lines() {
        let scratch = tempfile::tempdir().unwrap();
        let home = Home::ensure(&scratch.path().join("home")).unwrap();
        let (folder, _lock) = Folder::create(&home, &"a1".parse().unwrap()).unwrap().unwrap();
        let mut reader = DecisionReader::default();
        assert!(reader.read(&folder).unwrap().is_empty());
        let mut log = DecisionLog::open(&folder).unwrap();
        log.append(&folder, &[decision(1), decision(2)]).unwrap();
        assert_eq!(ports(&reader.read(&folder).unwrap()), [1, 2]);
        log.file.write_all(b"{\"at\":").unwrap();
        drop(log);
        let mut log = DecisionLog::open(&folder).unwrap();
        log.append(&folder, &[decision(3)]).unwrap();
        assert_eq!(ports(&reader.read(&folder).unwrap()), [3]);
        let many: Vec<_> = (0..1000).map(decision).collect();
        for _ in 0..10 {
            log.append(&folder, &many).unwrap();
            assert_eq!(reader.read(&folder).unwrap().len(), 1000);
        }
        let kept = DecisionReader::default().read(&folder).unwrap().len();
        assert!((1000..10_000).contains(&kept), "{kept}");
    }
}
