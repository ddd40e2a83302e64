use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{Command, EnvVars, GuestPath, Output, Result, UserName};

/// Bytes of output kept of each stream unless told otherwise: 50 MiB, the cap that the reference's container backend has.
pub const DEFAULT_OUTPUT_LIMIT: usize = 50 * 1024 * 1024;

/// Runs commands to their end.
#[async_trait]
pub trait Commands: Send + Sync {
    /// Runs `command` and collects its output.
    ///
    /// # Behavior
    /// - A non-zero exit, a signal and an unknown end are data, not errors.
    /// - Output is bytes, unchanged, complete up to the limit; the two streams are kept apart.
    /// - Each argument reaches the program as it is.
    /// - The command sees the sandbox's environment with `options.env` over it.
    /// - At `options.timeout` the command's whole process tree is ended, and the error is `Timeout` with the partial output.
    /// - A program that is not found or may not be executed is a shell's answer: exit code 127 or 126, with the reason on standard error.
    /// - A detached descendant does not keep the call: it answers soon after the command itself has ended.
    /// - A working folder or user that does not exist is `InvalidInput`, and nothing runs.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// let command = Command::new("printf").args(["%s|", "two words", "$HOME"]);
    /// let output = sandbox.commands().run(&command).await?;
    /// assert_eq!(output.stdout_lossy(), "two words|$HOME|");
    ///
    /// let slow = Command::shell("echo so far; sleep 60");
    /// let options = RunOptions::default().with_timeout(std::time::Duration::from_millis(50));
    /// let error = sandbox.commands().run_opts(&slow, options).await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Timeout);
    /// assert_eq!(error.partial().unwrap().stdout.as_ref(), b"so far\n");
    /// # Ok(())
    /// # }
    /// ```
    async fn run_opts(&self, command: &Command, options: RunOptions) -> Result<Output>;

    /// [`Commands::run_opts`] with defaults.
    async fn run(&self, command: &Command) -> Result<Output> {
        self.run_opts(command, RunOptions::default()).await
    }
}

/// How to run a command.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Working folder; the user's home if absent.
    pub cwd: Option<GuestPath>,
    /// Environment over the sandbox's own.
    pub env: EnvVars,
    /// Who runs it; the template's default user if absent.
    pub user: Option<UserName>,
    /// How long it may take; until the sandbox ends if absent.
    pub timeout: Option<Duration>,
    /// What it reads.
    pub stdin: Stdin,
    /// Most bytes kept of each output stream.
    pub output_limit: usize,
}

/// What a command reads.
#[derive(Clone, Debug, Default)]
pub enum Stdin {
    /// End of file at once.
    #[default]
    Null,
    /// These bytes, then end of file.
    Bytes(Bytes),
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            cwd: None,
            env: EnvVars::new(),
            user: None,
            timeout: None,
            stdin: Stdin::Null,
            output_limit: DEFAULT_OUTPUT_LIMIT,
        }
    }
}

impl RunOptions {
    /// Sets the working folder.
    pub fn with_cwd(mut self, cwd: GuestPath) -> Self {
        self.cwd = Some(cwd);
        self
    }

    /// Sets the environment over the sandbox's own.
    pub fn with_env(mut self, env: EnvVars) -> Self {
        self.env = env;
        self
    }

    /// Sets who runs it.
    pub fn with_user(mut self, user: UserName) -> Self {
        self.user = Some(user);
        self
    }

    /// Sets how long it may take.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets what it reads.
    pub fn with_stdin(mut self, bytes: impl Into<Bytes>) -> Self {
        self.stdin = Stdin::Bytes(bytes.into());
        self
    }

    /// Sets the most bytes kept of each output stream.
    pub fn with_output_limit(mut self, bytes: usize) -> Self {
        self.output_limit = bytes;
        self
    }
}
