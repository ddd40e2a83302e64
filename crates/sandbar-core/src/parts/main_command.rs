use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{ExitStatus, ProcessId, RestartPolicy, Result};

/// What a main command said, in the order in which it came. Ends by itself, or with an error that says what is unknown.
pub type MainLogs = BoxStream<'static, Result<LogEvent>>;

/// The command that a sandbox is for: how it is, and what it said.
#[async_trait]
pub trait MainProcess: Send + Sync {
    /// How it is now; `None` means that the sandbox positively has no main command.
    ///
    /// # Behavior
    /// - A main command that ended by itself leaves its sandbox running.
    /// - One that is to be started again is [`MainState::BackingOff`] until it is, at a time that [`MainStatus::next_start`] tells.
    /// - Where nobody watches over it, its state is [`MainState::Unknown`], never one of long ago.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let main = MainCommand::new(Command::new("sleep").arg("60"));
    /// let sandbox = provider.create(CreateOptions::new().with_main(main)).await?;
    /// let status = sandbox.require_main_command()?.status().await?.expect("it has one");
    /// assert_eq!(status.state, MainState::Running);
    ///
    /// let without = provider.create(CreateOptions::new()).await?;
    /// assert!(without.require_main_command()?.status().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    async fn status(&self) -> Result<Option<MainStatus>>;

    /// What it said on its standard output and standard error. A sandbox without a main command is `NotFound`.
    ///
    /// # Behavior
    /// - All that was said when the call was made and is still kept comes; what is not kept any more is said, in bytes.
    /// - Bytes are as they were written.
    /// - Following ends when the main command has ended and is not started again, or when the sandbox ends.
    /// - What was kept can be read also when the sandbox has stopped.
    ///
    /// ```
    /// # use futures::StreamExt;
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let main = MainCommand::new(Command::shell("echo one; echo two"));
    /// let sandbox = provider.create(CreateOptions::new().with_main(main)).await?;
    /// let options = LogOptions { follow: Follow::Yes, ..LogOptions::default() };
    /// let mut logs = sandbox.require_main_command()?.logs(options).await?;
    /// let mut said = Vec::new();
    /// while let Some(event) = logs.next().await {
    ///     if let LogEvent::Output(chunk) = event? {
    ///         said.extend_from_slice(&chunk.bytes);
    ///     }
    /// }
    /// assert_eq!(said, b"one\ntwo\n");
    /// # Ok(())
    /// # }
    /// ```
    async fn logs(&self, options: LogOptions) -> Result<MainLogs>;
}

/// How a main command is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MainStatus {
    /// The program, as it was named. Its arguments are left out: they may hold secrets.
    pub program: String,
    /// What is done when it ends.
    pub restart: RestartPolicy,
    /// Its state.
    pub state: MainState,
    /// Its number inside, while it runs.
    pub pid: Option<ProcessId>,
    /// When it was last started.
    pub started_at: Option<Timestamp>,
    /// How often it was started again.
    pub restarts: u64,
    /// How it last ended, if it did.
    pub exit: Option<ExitStatus>,
    /// When it is started again, while it backs off.
    pub next_start: Option<Timestamp>,
    /// Why its last start did not come off, where it did not.
    pub problem: Option<String>,
}

/// The state of a main command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MainState {
    /// It runs.
    Running,
    /// It ended and will be started again.
    BackingOff,
    /// It ended and will not be started again.
    Exited,
    /// Nobody watches over it, so nobody knows.
    Unknown,
}

impl MainState {
    /// The word used in JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::BackingOff => "backing_off",
            Self::Exited => "exited",
            Self::Unknown => "unknown",
        }
    }
}

/// Which part of the logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Whether to go on with what will be said.
    pub follow: Follow,
    /// Only the last so many lines of what is kept. Lines are counted over both streams as they came.
    pub tail: Option<usize>,
    /// Only what was said at this time or later.
    pub since: Option<Timestamp>,
}

/// Whether to wait for more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// What is there.
    #[default]
    No,
    /// And what will be.
    Yes,
}

/// A piece of the logs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogEvent {
    /// It said something.
    Output(LogChunk),
    /// It said this many bytes here that are not kept.
    Lost(u64),
}

/// Bytes that a main command wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    /// When they were read from it.
    pub at: Timestamp,
    /// Where they were written.
    pub stream: LogStream,
    /// The bytes, as they were written.
    pub bytes: Bytes,
}

/// One of the two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl LogOptions {
    /// Whether `at` is of interest.
    pub fn wants(&self, at: Timestamp) -> bool {
        self.since.is_none_or(|since| at >= since)
    }

    /// The part of what is kept that was asked for. For backends.
    pub fn select(&self, kept: Vec<LogEvent>) -> Vec<LogEvent> {
        let mut chosen = kept;
        if let Some(first) = self.since.map(|_| first_wanted(self, &chosen)) {
            chosen.drain(..first);
        }
        match self.tail {
            Some(lines) => tail(chosen, lines),
            None => chosen,
        }
    }
}

/// Where what is of interest begins.
fn first_wanted(options: &LogOptions, kept: &[LogEvent]) -> usize {
    let wanted = |event: &LogEvent| matches!(event, LogEvent::Output(chunk) if options.wants(chunk.at));
    kept.iter().position(wanted).unwrap_or(kept.len())
}

/// The last `lines` lines. A last line without an end is one, too.
fn tail(kept: Vec<LogEvent>, lines: usize) -> Vec<LogEvent> {
    let mut chosen = Vec::new();
    let mut ends = 0;
    let mut is_last_byte = true;
    for event in kept.into_iter().rev() {
        let LogEvent::Output(mut chunk) = event else {
            // What is missing in the middle of what is shown is said.
            if !is_last_byte && ends < lines {
                chosen.push(event);
            }
            continue;
        };
        let mut cut = None;
        for (index, byte) in chunk.bytes.iter().enumerate().rev() {
            let ends_a_line = *byte == b'\n' && !is_last_byte;
            is_last_byte = false;
            if ends_a_line {
                ends += 1;
            }
            if ends >= lines {
                cut = Some(index + 1);
                break;
            }
        }
        match cut {
            None => chosen.push(LogEvent::Output(chunk)),
            Some(index) => {
                let rest = chunk.bytes.split_off(index.min(chunk.bytes.len()));
                if lines > 0 && !rest.is_empty() {
                    chosen.push(LogEvent::Output(LogChunk { bytes: rest, ..chunk }));
                }
                break;
            }
        }
    }
    chosen.reverse();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(second: i64, text: &'static str) -> LogEvent {
        let at = Timestamp::from_second(second).unwrap();
        LogEvent::Output(LogChunk {
            at,
            stream: LogStream::Stdout,
            bytes: Bytes::from_static(text.as_bytes()),
        })
    }

    fn shown(events: &[LogEvent]) -> String {
        events
            .iter()
            .map(|event| match event {
                LogEvent::Output(chunk) => String::from_utf8_lossy(&chunk.bytes).into_owned(),
                LogEvent::Lost(bytes) => format!("<{bytes}>"),
            })
            .collect()
    }

    fn last(lines: usize, kept: Vec<LogEvent>) -> String {
        shown(&LogOptions { tail: Some(lines), ..LogOptions::default() }.select(kept))
    }

    #[test]
    fn the_last_lines_are_counted_over_pieces() {
        let kept = || vec![said(1, "a\nb"), said(2, "b\n"), said(3, "c\n")];
        assert_eq!(last(0, kept()), "");
        assert_eq!(last(1, kept()), "c\n");
        assert_eq!(last(2, kept()), "bb\nc\n");
        assert_eq!(last(3, kept()), "a\nbb\nc\n");
        assert_eq!(last(9, kept()), "a\nbb\nc\n");
        assert_eq!(last(1, vec![said(1, "a\nb")]), "b", "a line without an end");
        assert_eq!(last(1, vec![said(1, "\n\n\n")]), "\n");
        assert_eq!(last(1, vec![]), "");
    }

    #[test]
    fn a_loss_is_said_where_it_is_among_what_is_shown() {
        let kept = || vec![LogEvent::Lost(9), said(1, "a\n"), LogEvent::Lost(7), said(2, "b\n")];
        // The line may have begun in what is lost.
        assert_eq!(last(2, kept()), "<9>a\n<7>b\n");
        assert_eq!(last(1, kept()), "<7>b\n");
        assert_eq!(shown(&LogOptions::default().select(kept())), "<9>a\n<7>b\n");
    }

    #[test]
    fn what_came_before_is_left_out() {
        let since = Some(Timestamp::from_second(2).unwrap());
        let kept = vec![LogEvent::Lost(1), said(1, "a\n"), said(2, "b\n"), LogEvent::Lost(3), said(3, "c\n")];
        assert_eq!(shown(&LogOptions { since, ..LogOptions::default() }.select(kept)), "b\n<3>c\n");
    }
}
