//! What a main command said, as it stands on disk: one JSON object a line, in two files of bounded size.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use rustix::fs::{Mode, OFlags, openat, renameat};
use sandbar_core::{LogChunk, LogEvent, LogStream};
use serde::{Deserialize, Serialize};

use super::Folder;
use super::lines::{LineLog, LineReader};

/// The file that grows.
const LOG: &str = "main.log";
/// The one before it.
const OLD_LOG: &str = "main.log.1";
/// Size at which a file is put aside, in bytes: some hundred thousand lines of text. Twice this is the most that a sandbox' logs take.
const MAX_FILE: u64 = 8 << 20;
/// Longest line, in bytes: what fits in a packet of the agent's, encoded.
const MAX_LINE: u64 = 128 << 10;

/// A line.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    /// Number of the first byte that it is about, over all that was ever said.
    o: u64,
    /// When, in Unix milliseconds.
    t: i64,
    /// Where it was said; absent where it is about what is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    s: Option<LogStream>,
    /// The bytes, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    d: Option<String>,
    /// How many bytes are lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lost: Option<u64>,
}

impl Line {
    fn event(&self) -> Option<(LogEvent, u64)> {
        match (&self.d, self.s, self.lost) {
            (Some(data), Some(stream), _) => {
                let bytes = Bytes::from(STANDARD.decode(data).ok()?);
                let length = bytes.len() as u64;
                let at = Timestamp::from_millisecond(self.t).ok()?;
                Some((LogEvent::Output(LogChunk { at, stream, bytes }), length))
            }
            (_, _, Some(lost)) => Some((LogEvent::Lost(lost), lost)),
            _ => None,
        }
    }
}

/// The writing end, which only the holder of the sandbox' lock has.
#[derive(Debug)]
pub(crate) struct MainLog {
    file: File,
    size: u64,
    next: u64,
}

impl MainLog {
    /// Opens the log, and makes it where there is none. A line that a killed writer left unfinished is taken off.
    pub(crate) fn open(folder: &Folder) -> io::Result<Self> {
        let mut file = open(folder, OFlags::RDWR | OFlags::CREATE)?;
        let (size, last) = last_line(&mut file)?;
        file.set_len(size)?;
        let last = match last {
            Some(last) => Some(last),
            None => match LineLog::open_found(folder, OLD_LOG)? {
                Some(mut old) => last_line(&mut old)?.1,
                None => None,
            },
        };
        let next = last.and_then(|line| Some(line.o.saturating_add(line.event()?.1))).unwrap_or(0);
        Ok(Self { file, size, next })
    }

    /// Number of the byte that comes next.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Adds events, the first of which begins with byte [`MainLog::next`]. All of them or, after an error, none.
    pub(crate) fn append(&mut self, folder: &Folder, events: &[LogEvent]) -> io::Result<()> {
        let mut text = Vec::new();
        let mut next = self.next;
        for event in events {
            let (line, length) = match event {
                LogEvent::Output(chunk) => (
                    Line {
                        o: next,
                        t: chunk.at.as_millisecond(),
                        s: Some(chunk.stream),
                        d: Some(STANDARD.encode(&chunk.bytes)),
                        lost: None,
                    },
                    chunk.bytes.len() as u64,
                ),
                LogEvent::Lost(lost) => (
                    Line { o: next, t: super::now().as_millisecond(), s: None, d: None, lost: Some(*lost) },
                    *lost,
                ),
                _ => continue,
            };
            serde_json::to_writer(&mut text, &line)?;
            text.push(b'\n');
            next = next.saturating_add(length);
        }
        if self.size >= MAX_FILE {
            renameat(folder, LOG, folder, OLD_LOG)?;
            self.file = open(folder, OFlags::RDWR | OFlags::CREATE)?;
            self.size = 0;
        }
        if let Err(cause) = self.file.write_all(&text) {
            // No half of a line; if that does not work either, readers pass it over.
            let _ = self.file.set_len(self.size);
            return Err(cause);
        }
        self.size += text.len() as u64;
        self.next = next;
        Ok(())
    }
}

/// Reads the log from its beginning, and what is added to it.
#[derive(Debug)]
pub(crate) struct MainLogReader {
    lines: LineReader,
    next: u64,
}

impl Default for MainLogReader {
    fn default() -> Self {
        let log = LineLog { name: LOG, old: OLD_LOG, max_file: MAX_FILE };
        Self { lines: LineReader::new(log), next: 0 }
    }
}

impl MainLogReader {
    /// What is there that was not read yet. A gap in the numbers is a loss.
    pub(crate) fn read(&mut self, folder: &Folder) -> io::Result<Vec<LogEvent>> {
        let Self { lines, next } = self;
        let mut events = Vec::new();
        lines.read(folder, |line| {
            let Ok(line) = serde_json::from_slice::<Line>(line) else { return };
            let Some((event, length)) = line.event() else { return };
            // What was read before a writer took it back and wrote it again.
            if line.o < *next {
                return;
            }
            if line.o > *next {
                events.push(LogEvent::Lost(line.o - *next));
            }
            *next = line.o.saturating_add(length);
            events.push(event);
        })?;
        Ok(events)
    }
}

/// The end of the last whole line, and that line.
fn last_line(file: &mut File) -> io::Result<(u64, Option<Line>)> {
    let size = file.metadata()?.len();
    let begin = size.saturating_sub(MAX_LINE * 2);
    file.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    file.take(MAX_LINE * 2).read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let last =
        bytes[..whole].split(|byte| *byte == b'\n').rev().find_map(|line| serde_json::from_slice(line).ok());
    Ok((begin + whole as u64, last))
}

fn open(folder: &Folder, flags: OFlags) -> rustix::io::Result<File> {
    let flags = flags | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat(folder, LOG, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::Home;

    fn folder() -> (tempfile::TempDir, Folder) {
        let scratch = tempfile::tempdir().unwrap();
        let home = Home::ensure(&scratch.path().join("home")).unwrap();
        let (folder, lock) =
            Folder::create(&home, &sandbar_core::SandboxId::new("s1").unwrap()).unwrap().unwrap();
        drop(lock);
        (scratch, folder)
    }

    fn said(text: &[u8]) -> LogEvent {
        let bytes = Bytes::copy_from_slice(text);
        LogEvent::Output(LogChunk {
            at: Timestamp::from_second(1).unwrap(),
            stream: LogStream::Stderr,
            bytes,
        })
    }

    #[test]
    fn what_is_written_is_read_once_as_it_comes() {
        let (_scratch, folder) = folder();
        let mut reader = MainLogReader::default();
        assert_eq!(reader.read(&folder).unwrap(), []);
        let mut log = MainLog::open(&folder).unwrap();
        log.append(&folder, &[said(b"a\0\xff"), LogEvent::Lost(5)]).unwrap();
        assert_eq!(reader.read(&folder).unwrap(), [said(b"a\0\xff"), LogEvent::Lost(5)]);
        log.append(&folder, &[said(b"b")]).unwrap();
        assert_eq!(reader.read(&folder).unwrap(), [said(b"b")]);
        assert_eq!(reader.read(&folder).unwrap(), []);
        assert_eq!(log.next(), 9);
    }

    #[test]
    fn a_torn_line_is_taken_off_and_the_number_goes_on() {
        let (_scratch, folder) = folder();
        let mut log = MainLog::open(&folder).unwrap();
        log.append(&folder, &[said(b"abc")]).unwrap();
        log.file.write_all(br#"{"o":3,"t":1,"s":"std"#).unwrap();
        let mut reader = MainLogReader::default();
        assert_eq!(reader.read(&folder).unwrap(), [said(b"abc")]);
        let mut log = MainLog::open(&folder).unwrap();
        assert_eq!(log.next(), 3);
        log.append(&folder, &[said(b"def")]).unwrap();
        let mut reader = MainLogReader::default();
        assert_eq!(reader.read(&folder).unwrap(), [said(b"abc"), said(b"def")]);
    }

    #[test]
    fn files_are_bounded_and_what_goes_is_said() {
        let (_scratch, folder) = folder();
        let mut log = MainLog::open(&folder).unwrap();
        let mut reader = MainLogReader::default();
        let (mut total, mut followed) = (0, 0);
        let chunk = vec![7; 32 << 10];
        let length = |events: &[LogEvent]| -> u64 {
            events
                .iter()
                .map(|event| if let LogEvent::Output(chunk) = event { chunk.bytes.len() as u64 } else { 0 })
                .sum()
        };
        for _ in 0..800 {
            log.append(&folder, &[said(&chunk)]).unwrap();
            total += chunk.len() as u64;
            followed += length(&reader.read(&folder).unwrap());
        }
        assert_eq!(followed, total, "a follower loses nothing to files that are put aside");
        for name in [LOG, OLD_LOG] {
            let size = LineLog::open_found(&folder, name).unwrap().unwrap().metadata().unwrap().len();
            assert!(size <= MAX_FILE + MAX_LINE, "{name}: {size}");
        }
        let late = MainLogReader::default().read(&folder).unwrap();
        let LogEvent::Lost(lost) = late[0] else { panic!("{:?}", late.first()) };
        assert_eq!(lost + length(&late), total);
        assert_eq!(MainLog::open(&folder).unwrap().next(), total);
    }
}
