use std::io::{self, IsTerminal, Write};

use bytes::{Bytes, BytesMut};
use sandbar::{DEFAULT_OUTPUT_LIMIT, ProcessEvent};

use crate::stdio::{Output, Stream};
use crate::terminal::Modes;

/// Where a command's output goes.
#[derive(Debug)]
pub(crate) enum Sink {
    /// To our own descriptors, as it comes.
    Pass { stdout: Output, stderr: Output },
    /// To the caller's terminal, as it comes, with an eye on what it changes there.
    Screen { stdout: Output, modes: Modes },
    /// Into memory, for JSON.
    Capture(Captured),
}

/// Output kept, within bounds.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    pub(crate) stdout: BytesMut,
    pub(crate) stderr: BytesMut,
    /// Whether there was more.
    pub(crate) truncated: bool,
}

impl Sink {
    pub(crate) fn pass() -> Self {
        Self::Pass { stdout: Output::new(Stream::Stdout), stderr: Output::new(Stream::Stderr) }
    }

    /// Where a command with a terminal says all.
    pub(crate) fn screen() -> Self {
        if std::io::stdout().is_terminal() {
            Self::Screen { stdout: Output::new(Stream::Stdout), modes: Modes::default() }
        } else {
            Self::pass()
        }
    }

    pub(crate) fn capture() -> Self {
        Self::Capture(Captured::default())
    }

    pub(super) async fn take(&mut self, event: ProcessEvent) -> io::Result<()> {
        let (stream, bytes) = match event {
            ProcessEvent::Stdout(bytes) | ProcessEvent::Terminal(bytes) => (Stream::Stdout, bytes),
            ProcessEvent::Stderr(bytes) => (Stream::Stderr, bytes),
            _ => return Ok(()),
        };
        match (self, stream) {
            (Self::Pass { stdout, .. }, Stream::Stdout) => stdout.write(bytes).await,
            (Self::Screen { stdout, modes }, _) => {
                modes.see(&bytes);
                stdout.write(bytes).await
            }
            (Self::Pass { stderr, .. }, Stream::Stderr) => stderr.write(bytes).await,
            (Self::Capture(captured), stream) => {
                captured.keep(stream, &bytes);
                Ok(())
            }
        }
    }

    /// Waits until all is out.
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Pass { stdout, stderr } => {
                stdout.finish().await?;
                stderr.finish().await
            }
            Self::Screen { stdout, .. } => stdout.finish().await,
            Self::Capture(_) => Ok(()),
        }
    }

    /// Undoes what the command changed at the caller's terminal and can't undo any more.
    pub(super) fn tidy(&self) {
        if let Self::Screen { modes, .. } = self {
            let mut out = io::stdout().lock();
            // A terminal that is gone needs nothing.
            let _ = out.write_all(modes.reset().as_bytes()).and_then(|()| out.flush());
        }
    }
}

impl Captured {
    fn keep(&mut self, stream: Stream, bytes: &Bytes) {
        let kept = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let room = DEFAULT_OUTPUT_LIMIT - kept.len();
        self.truncated |= bytes.len() > room;
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_limit_is_dropped_and_told() {
        let mut captured = Captured::default();
        let chunk = Bytes::from(vec![7; DEFAULT_OUTPUT_LIMIT]);
        captured.keep(Stream::Stdout, &chunk);
        assert!(!captured.truncated);
        captured.keep(Stream::Stderr, &chunk.slice(..1));
        assert!(!captured.truncated);
        captured.keep(Stream::Stdout, &chunk.slice(..1));
        assert!(captured.truncated);
        assert_eq!((captured.stdout.len(), captured.stderr.len()), (DEFAULT_OUTPUT_LIMIT, 1));
    }
}
