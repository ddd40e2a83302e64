use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rustix::io::Errno;
use sandbar_engine::handover::AGENT_PATH;
use sandbar_engine::process::{Child, Event, Spawn, Stdin, Stdio, Tree};
use sandbar_wire::envd::{ArchiveReport, HttpError};
use tokio::io::unix::AsyncFd;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::ARCHIVE_ROLE;
use super::outcome::Outcome;
use crate::descriptor;
use crate::processes::{end_orphans, next_event};
use crate::state::State;
use crate::users::User;

/// How long executing it may take; only a broken disk takes that long.
const EXEC_LIMIT: Duration = Duration::from_secs(30);
/// Bytes that its pipes are to hold, where the kernel lets them: fewer changes between it and the agent.
const PIPE_BYTES: usize = 256 << 10;
/// Bytes of one read.
const CHUNK_BYTES: usize = 128 << 10;
/// Most of them at the same time: each takes some MiB of the sandbox's memory.
const MAX_PROGRAMS: usize = 16;
/// Longest outcome that is read, in bytes: it is the user's program, and may be made to say anything.
const MAX_OUTCOME: usize = 64 << 10;

thread_local! {
    /// Of the one serving thread.
    static PLACES: Arc<Semaphore> = Arc::new(Semaphore::new(MAX_PROGRAMS));
}

/// The program at work.
pub(super) struct Program {
    /// Given back when this one is over. One that cleans up has none, as it has to run in any case.
    _place: Option<OwnedSemaphorePermit>,
    stdin: Option<AsyncFd<OwnedFd>>,
    stdout: AsyncFd<OwnedFd>,
    stderr: AsyncFd<OwnedFd>,
    /// Through this it is told that all came that belongs to it.
    go: Option<OwnedFd>,
}

/// What the program is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job<'a> {
    /// Pack what is at the path to standard output.
    Export,
    /// Unpack standard input, by way of a folder of this name.
    Import(&'a str),
    /// Remove the folder of this name, which an import left that was killed.
    Discard(&'a str),
}

impl Program {
    /// Starts it as that user. It ends when the other ends of its pipes are closed.
    pub(super) async fn start(
        state: &Rc<State>,
        user: &User,
        job: Job<'_>,
        path: &Path,
    ) -> Result<Self, HttpError> {
        let (word, staging, stdin) = match job {
            Job::Export => ("export", None, Stdin::Null),
            Job::Import(name) => ("import", Some(name), Stdin::Pipe),
            Job::Discard(name) => ("discard", Some(name), Stdin::Null),
        };
        let place = match job {
            Job::Discard(_) => None,
            Job::Export | Job::Import(_) => {
                let place = PLACES.with(|places| places.clone().try_acquire_owned());
                Some(place.map_err(|_| {
                    let text = format!(
                        "{MAX_PROGRAMS} archives are on their way already: try again when one is done"
                    );
                    HttpError::new(429, text)
                })?)
            }
        };
        let (go_read, go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|error| HttpError::new(507, format!("open a pipe: {error}")))?;
        let arguments = [ARCHIVE_ROLE, word.as_bytes(), path.as_os_str().as_bytes()];
        let argv = arguments.into_iter().chain(staging.map(str::as_bytes)).map(CString::new);
        let (identity, capabilities) = state.rights(user);
        let spawn = Spawn {
            programs: vec![CString::new(AGENT_PATH).map_err(internal)?],
            argv: argv
                .collect::<Result<_, _>>()
                .map_err(|_| HttpError::new(400, "the path has a zero byte"))?,
            cwd: Some(CString::from(c"/")),
            identity,
            capabilities,
            stdio: Stdio::Pipes { stdin },
            more_descriptors: vec![go_read],
            rlimits: state.config.rlimits.clone(),
            oom_score: state.oom_score.clone(),
            env: Vec::new(),
        };
        let child = spawn.start().map_err(|error| {
            HttpError::new(if error.is_exhaustion() { 507 } else { 500 }, error.to_string())
        })?;
        let Child { tree, report, stdin, stdout, stderr, pty: _ } = child;
        let tree = Arc::new(tree);
        let report = descriptor::watch(report).map_err(internal)?;
        state.registry.insert_tree(&tree);
        let started = timeout(EXEC_LIMIT, next_event(&report)).await;
        if let Ok(Ok(Event::Started(pid))) = &started {
            tree.set_root(*pid);
        }
        follow(state, tree, report);
        match started {
            Ok(Ok(Event::Started(_))) => {}
            Ok(Ok(Event::Failed(failure))) => {
                let text = format!("start the program that moves archives: {}", failure.reason());
                let limits = [Errno::AGAIN, Errno::NOMEM].map(Errno::raw_os_error);
                return Err(HttpError::new(if limits.contains(&failure.errno) { 507 } else { 500 }, text));
            }
            _ => return Err(HttpError::new(500, "the program that moves archives was not started in time")),
        }
        let wrap = |end: Option<OwnedFd>| {
            let end =
                end.ok_or_else(|| HttpError::new(500, "the program that moves archives has no pipe"))?;
            // The kernel may give less, which is only slower.
            let _ = rustix::pipe::fcntl_setpipe_size(&end, PIPE_BYTES);
            descriptor::watch(end).map_err(internal)
        };
        let stdin = stdin.map(|end| wrap(Some(end))).transpose()?;
        Ok(Self { _place: place, stdin, stdout: wrap(stdout)?, stderr: wrap(stderr)?, go: Some(go) })
    }

    /// The next piece of its output; empty at the end.
    pub(super) async fn output(&self) -> io::Result<Bytes> {
        read(&self.stdout, CHUNK_BYTES).await
    }

    /// Hands it a piece. False where it takes no more, and then its outcome says why.
    pub(super) async fn input(&self, mut piece: Bytes) -> io::Result<bool> {
        let Some(stdin) = &self.stdin else { return Ok(false) };
        while !piece.is_empty() {
            let mut ready = stdin.writable().await?;
            match rustix::io::write(stdin.get_ref(), &piece) {
                Ok(written) => drop(piece.split_to(written)),
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Says that everything came, and so that what came is to stand.
    pub(super) fn go(&mut self) {
        self.stdin = None;
        if let Some(go) = self.go.take() {
            // A program that ended needs no word.
            let _ = rustix::io::write(&go, &[super::role::GO]);
        }
    }

    /// Waits for its end and takes its outcome, `None` where it was killed before it could say anything.
    pub(super) async fn outcome(mut self) -> Option<Result<ArchiveReport, HttpError>> {
        self.stdin = None;
        self.go = None;
        let mut text = BytesMut::new();
        while let Ok(piece) = read(&self.stderr, MAX_OUTCOME).await {
            if piece.is_empty() || text.len() + piece.len() > MAX_OUTCOME {
                break;
            }
            text.extend_from_slice(&piece);
        }
        match serde_json::from_slice(&text).ok()? {
            Outcome::Done(report) => Some(Ok(report)),
            Outcome::Failed(error) => Some(Err(error)),
        }
    }
}

/// Keeps the program known until it has ended.
fn follow(state: &Rc<State>, tree: Arc<Tree>, report: AsyncFd<OwnedFd>) {
    let state = state.clone();
    tokio::task::spawn_local(async move {
        let mut ended = false;
        loop {
            match next_event(&report).await {
                Ok(Event::Exited(_) | Event::Failed(_)) => ended = true,
                Ok(Event::Started(pid)) => tree.set_root(pid),
                Ok(Event::Gone) | Err(_) => break,
            }
        }
        if !ended {
            end_orphans(&state, &tree);
        }
        state.registry.remove_tree(&tree);
    });
}

async fn read(source: &AsyncFd<OwnedFd>, most: usize) -> io::Result<Bytes> {
    loop {
        let mut ready = source.readable().await?;
        let mut buffer = BytesMut::zeroed(most);
        match rustix::io::read(source.get_ref(), &mut buffer[..]) {
            Ok(count) => {
                buffer.truncate(count);
                return Ok(buffer.freeze());
            }
            Err(Errno::AGAIN) => ready.clear_ready(),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn internal(error: impl std::fmt::Display) -> HttpError {
    HttpError::new(500, format!("start the program that moves archives: {error}"))
}
