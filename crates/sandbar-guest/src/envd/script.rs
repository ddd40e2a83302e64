//! Scripts that do inside what the agent does not.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sandbar_core::{Command, EnvVars, ErrorKind, ExitStatus, Result, UserName};
use sandbar_wire::envd::Channel;
use tokio::time::timeout;

use super::EnvdClient;
use crate::fault;
use crate::operation::Operation;
use crate::start::{Said, Stopped, Wish};

/// Most bytes of each of its streams that are kept, unless more is asked for: a status and an error.
const KEPT: usize = 64 << 10;
/// Longest text of a failed step that an error shows, in characters.
const SHOWN: usize = 300;
/// How much longer than its own time a script may take to be ended by the agent.
const GRACE: Duration = Duration::from_secs(5);

/// A script for `/bin/sh`. Its arguments are never parsed as a part of it.
#[derive(Debug)]
pub(super) struct Script<'a> {
    /// What it does.
    pub(super) text: &'static str,
    /// `$1` and so on.
    pub(super) arguments: Vec<String>,
    /// Who runs it; the template's default user if absent.
    pub(super) user: Option<&'a UserName>,
    /// How long it may take.
    pub(super) bound: Duration,
    /// Most bytes kept of its output.
    pub(super) kept: usize,
}

/// What a script did.
#[derive(Debug)]
pub(super) struct Done {
    /// How it ended.
    pub(super) status: ExitStatus,
    /// Its output.
    pub(super) stdout: Bytes,
    /// What it complained of.
    pub(super) stderr: Bytes,
}

impl<'a> Script<'a> {
    pub(super) fn new(text: &'static str, arguments: Vec<String>, bound: Duration) -> Self {
        Self { text, arguments, user: None, bound, kept: KEPT }
    }

    pub(super) fn with_user(mut self, user: Option<&'a UserName>) -> Self {
        self.user = user;
        self
    }

    pub(super) fn with_kept(mut self, bytes: usize) -> Self {
        self.kept = bytes;
        self
    }
}

impl EnvdClient {
    /// Runs a script to its end. That it failed is its own to tell; what stood in its way is an error.
    pub(super) async fn script(&self, script: Script<'_>, operation: Operation) -> Result<Done> {
        let command =
            Command::shell(script.text).arg("sandbar").args(script.arguments.iter().map(String::as_str));
        let env = EnvVars::new();
        let wish = Wish {
            command: &command,
            cwd: None,
            env: &env,
            user: script.user,
            timeout: Some(script.bound),
            stdin: false,
            pty: None,
            tag: None,
        };
        let over = || {
            let why = format!("what had to be run inside for it took more than {} s", script.bound.as_secs());
            operation.fail(ErrorKind::Timeout, why).with_retry(sandbar_core::Retry::OutcomeUnknown)
        };
        let running = async {
            let mut process = match self.begin(wish, operation).await? {
                Ok(process) => process,
                Err(error) => return Err(self.refused_start(operation, &error)),
            };
            let (mut stdout, mut stderr) = (BytesMut::new(), BytesMut::new());
            let keep = |kept: &mut BytesMut, bytes: &[u8]| {
                let fits = script.kept.saturating_sub(kept.len()).min(bytes.len());
                kept.extend_from_slice(&bytes[..fits]);
            };
            loop {
                match self.guest.next_of(&mut process, operation).await {
                    Ok(Said::Data(Channel::Stderr, bytes)) => keep(&mut stderr, &bytes),
                    Ok(Said::Data(_, bytes)) => keep(&mut stdout, &bytes),
                    Ok(Said::End(exit)) => {
                        let (stdout, stderr) = (stdout.freeze(), stderr.freeze());
                        return Ok(Done { status: exit.status, stdout, stderr });
                    }
                    Err(Stopped::TimedOut | Stopped::TimedOutSilently) => return Err(over()),
                    Err(Stopped::Failed(error)) => return Err(error),
                }
            }
        };
        match timeout(script.bound.saturating_add(GRACE), running).await {
            Ok(done) => done,
            Err(_) => Err(over()),
        }
    }
}

impl Done {
    /// What it complained of, bounded, and how it ended where it did not say.
    pub(super) fn complaint(&self) -> String {
        let text: String = String::from_utf8_lossy(&self.stderr).trim().chars().take(SHOWN).collect();
        if text.is_empty() { self.status.to_string() } else { fault::readable(&text) }
    }

    /// The error of a step that failed, with its status and what it complained of.
    pub(super) fn failed(&self, stage: &str, operation: Operation) -> sandbar_core::Error {
        let message = format!("{stage}: {}, {}", self.status, self.complaint());
        operation.fail(ErrorKind::Unexpected, message)
    }
}
