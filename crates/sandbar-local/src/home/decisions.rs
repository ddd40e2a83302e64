//! What the gateway of a sandbox decided, as it stands on disk: one JSON object a line, in two files of bounded size.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use rustix::fs::{Mode, OFlags, openat, renameat};
use sandbar_core::Decision;

use super::Folder;
use super::lines::{LineLog, LineReader};

/// The file that grows.
const LOG: &str = "egress.jsonl";
/// The one before it.
const OLD_LOG: &str = "egress.jsonl.1";
/// Size at which a file is put aside, in bytes: some ten thousand decisions. Twice this is the most that a sandbox' decisions take.
const MAX_FILE: u64 = 4 << 20;

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
#[derive(Debug)]
pub(crate) struct DecisionReader {
    lines: LineReader,
}

impl Default for DecisionReader {
    fn default() -> Self {
        let log = LineLog { name: LOG, old: OLD_LOG, max_file: MAX_FILE };
        Self { lines: LineReader::new(log) }
    }
}

impl DecisionReader {
    /// What is there that was not read yet.
    pub(crate) fn read(&mut self, folder: &Folder) -> io::Result<Vec<Decision>> {
        let mut decisions = Vec::new();
        self.lines.read(folder, |line| decisions.extend(serde_json::from_slice::<Decision>(line).ok()))?;
        Ok(decisions)
    }
}

fn open(folder: &Folder) -> rustix::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat(folder, LOG, flags, Mode::RUSR | Mode::WUSR).map(File::from)
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
