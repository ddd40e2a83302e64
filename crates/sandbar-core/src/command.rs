use std::ffi::{OsStr, OsString};
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// A program and its arguments. Never parsed again: each argument reaches the program as it stands here.
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    argv: Vec<OsString>,
}

impl Command {
    /// A command that runs `program`, looked up in the sandbox's `PATH` unless it holds a `/`.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self { argv: vec![program.into()] }
    }

    /// A command from a whole `argv`. Empty is refused, and so is an argument with a NUL byte.
    pub fn from_argv<I, A>(argv: I) -> Result<Self>
    where
        I: IntoIterator<Item = A>,
        A: Into<OsString>,
    {
        let argv: Vec<OsString> = argv.into_iter().map(Into::into).collect();
        let command = Self { argv };
        command.check()?;
        Ok(command)
    }

    /// `script` run by the sandbox's `/bin/sh -c`.
    pub fn shell(script: impl Into<OsString>) -> Self {
        Self { argv: vec!["/bin/sh".into(), "-c".into(), script.into()] }
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.argv.push(argument.into());
        self
    }

    /// Adds arguments.
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.argv.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// The program, `argv[0]`.
    pub fn program(&self) -> &OsStr {
        &self.argv[0]
    }

    /// All of `argv`, the program first.
    pub fn argv(&self) -> &[OsString] {
        &self.argv
    }

    /// Refuses what no kernel would take: an empty `argv`, an empty program, a NUL byte.
    pub fn check(&self) -> Result<()> {
        if self.argv.first().is_none_or(|program| program.is_empty()) {
            return Err(Error::invalid("parse command", "the command is empty: expected a program to run"));
        }
        if self.argv.iter().any(|argument| argument.as_encoded_bytes().contains(&0)) {
            return Err(Error::invalid("parse command", "an argument holds a NUL byte"));
        }
        Ok(())
    }
}

impl fmt::Debug for Command {
    /// Shows the program and the number of arguments: arguments may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Command({:?} + {} arguments)", self.argv.first(), self.argv.len().saturating_sub(1))
    }
}

/// How a process ended. However it ended is data, never an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// It is gone and nobody knows how. Counts as a failure.
    Unknown,
}

impl ExitStatus {
    /// Whether it exited with code 0. [`ExitStatus::Unknown`] is never a success.
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }

    /// The status as one number, as shells have it: the code, 128 + signal, or 137 for [`ExitStatus::Unknown`].
    pub fn to_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
            Self::Unknown => 137,
        }
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Unknown => f.write_str("unknown status"),
        }
    }
}

/// Which limit ended a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum KillCause {
    /// The memory limit.
    Oom,
    /// The limit on processes.
    Pids,
    /// The limit on disk use.
    Disk,
    /// A timeout or the sandbox's deadline.
    Timeout,
}

/// What a finished command left.
#[derive(Clone)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output, unchanged, up to the limit asked for.
    pub stdout: Bytes,
    /// Its standard error, unchanged, up to the limit asked for.
    pub stderr: Bytes,
    /// Whether there was more output than the limit let through. The rest was read and dropped, so the command was not blocked.
    pub truncated: bool,
    /// The limit that ended it, where one is known to have.
    pub cause: Option<KillCause>,
    /// From start to end.
    pub duration: Duration,
}

impl Output {
    /// Standard output as text, with anything that is not UTF-8 replaced.
    pub fn stdout_lossy(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.stdout)
    }

    /// Standard error as text, with anything that is not UTF-8 replaced.
    pub fn stderr_lossy(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.stderr)
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output")
            .field("status", &self.status)
            .field("stdout", &format_args!("{} bytes", self.stdout.len()))
            .field("stderr", &format_args!("{} bytes", self.stderr.len()))
            .field("truncated", &self.truncated)
            .field("cause", &self.cause)
            .finish_non_exhaustive()
    }
}
