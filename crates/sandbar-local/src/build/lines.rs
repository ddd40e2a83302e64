use std::collections::VecDeque;

/// Longest line that is passed on, in bytes; a longer one is cut into several.
const MAX_LINE: usize = 8 << 10;
/// Most bytes that one step says; the rest is left out, and that is said.
const MAX_SAID: usize = 16 << 20;
/// Last lines that are kept for an error.
const LAST: usize = 3;
/// Bytes of each of them in an error.
const SHOWN: usize = 200;

/// Cuts what a step says into lines, each stream of its own.
#[derive(Debug, Default)]
pub(super) struct Lines {
    open: [Vec<u8>; 2],
    said: usize,
    last: VecDeque<String>,
}

/// By which of the two streams.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stream {
    Out = 0,
    Err = 1,
}

impl Lines {
    /// The lines that end in these bytes.
    pub(super) fn take(&mut self, stream: Stream, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for byte in bytes {
            let open = &mut self.open[stream as usize];
            if *byte != b'\n' {
                open.push(*byte);
            }
            if *byte == b'\n' || open.len() >= MAX_LINE {
                let line = std::mem::take(open);
                lines.extend(self.line(&line));
            }
        }
        lines
    }

    /// What is left without an end.
    pub(super) fn rest(&mut self) -> Vec<String> {
        let open = std::mem::take(&mut self.open);
        open.iter().filter(|line| !line.is_empty()).filter_map(|line| self.line(line)).collect()
    }

    /// The last lines, for an error.
    pub(super) fn last_words(&self) -> String {
        self.last.iter().map(String::as_str).collect::<Vec<_>>().join(" / ")
    }

    fn line(&mut self, bytes: &[u8]) -> Option<String> {
        let text = String::from_utf8_lossy(bytes.strip_suffix(b"\r").unwrap_or(bytes)).into_owned();
        let shown: String = text.trim().chars().filter(|c| !c.is_control()).take(SHOWN).collect();
        if !shown.is_empty() {
            self.last.push_back(shown);
            if self.last.len() > LAST {
                self.last.pop_front();
            }
        }
        let before = self.said;
        self.said = self.said.saturating_add(bytes.len() + 1);
        match (before <= MAX_SAID, self.said <= MAX_SAID) {
            (true, true) => Some(text),
            (true, false) => {
                Some(format!("(it said more than {} MiB; the rest is left out)", MAX_SAID >> 20))
            }
            _ => None,
        }
    }
}
