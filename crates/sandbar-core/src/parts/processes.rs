use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use serde::Serialize;

use crate::{Command, EnvVars, Error, ErrorKind, ExitStatus, GuestPath, KillCause, Result, UserName};

/// The number of a process inside its sandbox.
pub type ProcessId = u32;

/// Events of a process, in order; ends after [`ProcessEvent::Exit`], or with an error that says what is unknown.
pub type ProcessEvents = BoxStream<'static, Result<ProcessEvent>>;

/// Long-running processes.
#[async_trait]
pub trait Processes: Send + Sync {
    /// Starts `command`.
    ///
    /// # Behavior
    /// - Answers once the process runs; one that can't be started is an error: `NotFound` if there is no such program, `PermissionDenied` if it may
    ///   not be executed, `InvalidInput` for a working folder or user that does not exist.
    /// - With a terminal, it is a real controlling terminal: byte 3 interrupts. Without, plain pipes. Never one for the other.
    /// - All output comes before [`ProcessEvent::Exit`].
    /// - Dropping the handle does not end the process.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// let options = SpawnOptions::new().with_stdin(StdinMode::Open);
    /// let process = sandbox.require_processes()?.spawn(&Command::new("cat"), options).await?;
    /// process.control.write("text".into()).await?;
    /// process.control.close_stdin().await?;
    /// assert!(process.wait().await?.status.is_success());
    /// # Ok(())
    /// # }
    /// ```
    async fn spawn(&self, command: &Command, options: SpawnOptions) -> Result<Process>;

    /// The processes started through the contract that still run.
    async fn list(&self) -> Result<Vec<ProcessInfo>>;

    /// Every process inside, whoever started it, but for what the backend itself keeps there. `Unsupported` where only the started ones are known.
    async fn list_all(&self) -> Result<Vec<ProcessInfo>> {
        let why = "this backend knows only those that it started";
        Err(Error::unsupported("list processes", "a list of all processes", why))
    }

    /// A handle on a running process, of whatever age. Output from before is not repeated. An unknown one is `NotFound`.
    async fn attach(&self, pid: ProcessId) -> Result<Process>;

    /// Sends a signal to the process and its tree; `false` means that there is positively no such process.
    ///
    /// ```
    /// # use sandbar_core::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let provider = MemoryProvider::new();
    /// let sandbox = provider.create(CreateOptions::new()).await?;
    /// let processes = sandbox.require_processes()?;
    /// let process = processes.spawn(&Command::new("sleep").arg("60"), SpawnOptions::new()).await?;
    /// let pid = process.pid;
    /// assert!(processes.signal(pid, Signal::TERM).await?);
    /// assert_eq!(process.wait().await?.status, ExitStatus::Signal(15));
    /// assert!(!processes.signal(pid, Signal::TERM).await?);
    /// # Ok(())
    /// # }
    /// ```
    async fn signal(&self, pid: ProcessId, signal: Signal) -> Result<bool>;

    /// Sends a signal to any process of [`Processes::list_all`], whoever started it; `false` means that there is positively no such process.
    /// `Unsupported` where only the started ones can be reached.
    async fn signal_any(&self, _pid: ProcessId, _signal: Signal, _reach: SignalReach) -> Result<bool> {
        let why = "this backend reaches only those that it started";
        Err(Error::unsupported(
            "signal",
            "a signal to a process that was not started through the contract",
            why,
        ))
    }
}

/// A started process: what it says, and how to talk to it.
pub struct Process {
    /// Its number.
    pub pid: ProcessId,
    /// What it says.
    pub events: ProcessEvents,
    /// How to talk to it; may be used while events are read.
    pub control: Arc<dyn ProcessControl>,
}

/// How to talk to a process.
#[async_trait]
pub trait ProcessControl: Send + Sync {
    /// Writes to its standard input or terminal. `Conflict` if its input is not open.
    async fn write(&self, bytes: Bytes) -> Result<()>;

    /// Closes its standard input. Does nothing if it is closed already.
    async fn close_stdin(&self) -> Result<()>;

    /// Tells it the size of its terminal. `Conflict` if it has none.
    async fn resize(&self, size: PtySize) -> Result<()>;

    /// As [`Processes::signal`].
    async fn signal(&self, signal: Signal) -> Result<bool>;
}

/// What a process says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ProcessEvent {
    /// Bytes of standard output.
    Stdout(Bytes),
    /// Bytes of standard error.
    Stderr(Bytes),
    /// Bytes of its terminal.
    Terminal(Bytes),
    /// It ended.
    Exit(ProcessExit),
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessExit {
    /// How.
    pub status: ExitStatus,
    /// The limit that ended it, where one is known to have.
    pub cause: Option<KillCause>,
}

/// How to start a process.
#[derive(Clone, Debug, Default)]
pub struct SpawnOptions {
    /// Working folder; the user's home if absent.
    pub cwd: Option<GuestPath>,
    /// Environment over the sandbox's own.
    pub env: EnvVars,
    /// Who runs it; the template's default user if absent.
    pub user: Option<UserName>,
    /// How long it may take; then its tree is ended and its events end with `Timeout`. Until the sandbox ends if absent.
    pub timeout: Option<Duration>,
    /// Its standard input. A terminal is always open.
    pub stdin: StdinMode,
    /// A terminal of this size instead of pipes.
    pub pty: Option<PtySize>,
    /// A name to find it by.
    pub tag: Option<String>,
}

/// The standard input of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StdinMode {
    /// End of file at once.
    #[default]
    Null,
    /// Open until closed.
    Open,
}

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PtySize {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

/// A signal by its Linux number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(pub i32);

impl Signal {
    /// Hang up.
    pub const HUP: Self = Self(1);
    /// Interrupt.
    pub const INT: Self = Self(2);
    /// Quit.
    pub const QUIT: Self = Self(3);
    /// End at once.
    pub const KILL: Self = Self(9);
    /// Please end.
    pub const TERM: Self = Self(15);
}

/// Who else a signal to a process is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SignalReach {
    /// All that it started, too.
    #[default]
    Tree,
    /// Nobody.
    Process,
}

/// A process that runs. What is not known is absent.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessInfo {
    /// Its number.
    pub pid: ProcessId,
    /// The name it was given.
    pub tag: Option<String>,
    /// Its program and arguments.
    pub argv: Vec<String>,
    /// Its working folder as it was asked for.
    pub cwd: Option<String>,
    /// Who started it.
    pub origin: ProcessOrigin,
    /// The process inside that it descends from.
    pub parent: Option<ProcessId>,
    /// Who runs it.
    pub user: Option<String>,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// What it is doing.
    pub state: Option<ProcessState>,
    /// How it is talked to, of a process that was started through the contract.
    pub input: Option<ProcessInput>,
}

/// Who started a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessOrigin {
    /// Somebody, through the contract.
    Contract,
    /// A process inside.
    Inside,
}

/// What a process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProcessState {
    /// It computes, or could.
    Running,
    /// It waits for something.
    Waiting,
    /// A signal stopped it.
    Stopped,
    /// It has ended, and whoever started it has not asked how.
    Ended,
}

/// How a process is talked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessInput {
    /// By its terminal.
    Terminal,
    /// By its standard input, which is open.
    Open,
    /// Not at all.
    None,
}

impl ProcessInfo {
    /// One that was started through the contract, and of which nothing else is known.
    pub fn new(pid: ProcessId, argv: Vec<String>) -> Self {
        Self {
            pid,
            tag: None,
            argv,
            cwd: None,
            origin: ProcessOrigin::Contract,
            parent: None,
            user: None,
            started_at: None,
            state: None,
            input: None,
        }
    }
}

impl Process {
    /// Waits for the end and drops all output.
    pub async fn wait(mut self) -> Result<ProcessExit> {
        while let Some(event) = self.events.next().await {
            if let ProcessEvent::Exit(exit) = event? {
                return Ok(exit);
            }
        }
        Err(Error::new(ErrorKind::Protocol, "wait", "the process' events ended without its exit"))
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("pid", &self.pid).finish_non_exhaustive()
    }
}

impl SpawnOptions {
    /// Defaults throughout.
    pub fn new() -> Self {
        Self::default()
    }

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

    /// Sets its standard input.
    pub fn with_stdin(mut self, stdin: StdinMode) -> Self {
        self.stdin = stdin;
        self
    }

    /// Gives it a terminal.
    pub fn with_pty(mut self, size: PtySize) -> Self {
        self.pty = Some(size);
        self
    }

    /// Names it.
    pub fn with_tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }
}
