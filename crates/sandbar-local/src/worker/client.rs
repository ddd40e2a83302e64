use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use sandbar_core::{ErrorKind, Result};
use sandbar_engine::worker::{Mapped, MappedProcess, mapped_tree};

use super::job::{FIRST, Job, Line, MAX_LINE, Order, Progress, Report, VERSION};
use crate::error::{engine, fail, io_error};
use crate::store::{STORE_BASE, StoreIds};

/// The name under which the executable is a worker.
const NAME: &std::ffi::CStr = c"sandbar-worker";
/// How long a worker may say nothing: writing back what a slow disk has not yet written takes longest.
const SILENCE: Duration = Duration::from_secs(600);

/// Ends a job early, from anywhere.
#[derive(Clone, Debug)]
pub(crate) struct Cancel {
    event: Arc<OwnedFd>,
}

impl Cancel {
    pub(crate) fn new() -> Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|cause| io_error("work", "an event descriptor", cause))?;
        Ok(Self { event: Arc::new(event) })
    }

    /// The job's process is ended, and whoever waits for it gets an error.
    pub(crate) fn cancel(&self) {
        // It fails only where it was called very often before.
        let _ = rustix::io::write(&*self.event, &1_u64.to_ne_bytes());
    }
}

/// Starts workers.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    executable: PathBuf,
    ids: StoreIds,
}

/// A job with what it takes to do it.
pub(crate) struct Task<'a> {
    pub(crate) job: Job,
    /// In the order that the job names.
    pub(crate) descriptors: Vec<BorrowedFd<'a>>,
    pub(crate) progress: &'a mut dyn FnMut(Progress),
    pub(crate) cancel: Option<&'a Cancel>,
}

impl Worker {
    /// Of this executable, for files of these ids: those of the store, for [`StoreIds::Range`] always [`STORE_BASE`].
    pub(crate) fn new(executable: &Path, ids: StoreIds) -> Self {
        Self { executable: executable.to_owned(), ids }
    }

    /// The ids that it writes with.
    pub(crate) fn ids(&self) -> &StoreIds {
        &self.ids
    }

    /// Makes a folder belong to who is root for the worker, so that it can fill it.
    pub(crate) fn own(&self, folder: BorrowedFd<'_>) -> Result<()> {
        let StoreIds::Range { first } = self.ids else { return Ok(()) };
        let (uid, gid) = (rustix::fs::Uid::from_raw(first), rustix::fs::Gid::from_raw(first));
        rustix::fs::fchown(folder, Some(uid), Some(gid))
            .map_err(|cause| io_error("work", "the owner of a folder", cause))
    }

    /// The tree at `folder`, whose files are of the ids `of`, so that the worker can read it.
    pub(crate) fn view(&self, folder: BorrowedFd<'_>, of: &StoreIds) -> Result<OwnedFd> {
        match (&self.ids, of) {
            (StoreIds::Range { first: to }, StoreIds::Range { first: from }) => {
                mapped_tree(folder, *from, *to).map_err(|cause| engine("work", cause))
            }
            (ours, theirs) if ours == theirs => {
                folder.try_clone_to_owned().map_err(|cause| io_error("work", "a folder", cause))
            }
            _ => {
                Err(fail(ErrorKind::Conflict, "work", "the files were made with other ids than are used now")
                    .with_hint("work as the user who made them, with the same subordinate ids"))
            }
        }
    }

    /// Does it, and waits for its end. Blocks: not for a thread that others wait for. Whatever it wrote is on the disk when it is done; after a failure, the
    /// caller throws away what there is.
    pub(crate) fn run(&self, task: Task<'_>, operation: &'static str) -> Result<Report> {
        let broken = |cause: Errno| io_error(operation, "the pipes of a worker", cause);
        debug_assert!(!matches!(self.ids, StoreIds::Range { first } if first != STORE_BASE));
        debug_assert_eq!(task.descriptors.len(), task.job.descriptors());
        let mut line = serde_json::to_vec(&Order { v: VERSION, job: task.job })
            .map_err(|cause| io_error(operation, "a worker's job", cause))?;
        line.push(b'\n');
        let place = self.executable.display();
        let program = open(&self.executable, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|cause| io_error(operation, &format!("`{place}`"), cause))?;
        let null = open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map_err(broken)?;
        let (input, orders) = pipe_with(PipeFlags::CLOEXEC).map_err(broken)?;
        let (report, output) = pipe_with(PipeFlags::CLOEXEC).map_err(broken)?;
        let mut descriptors = vec![input.as_fd(), output.as_fd(), null.as_fd()];
        debug_assert_eq!(descriptors.len(), FIRST);
        descriptors.extend(task.descriptors);
        let ids = self.ids.to_mode();
        let mapped = Mapped { program: program.as_fd(), name: NAME, ids: &ids, descriptors: &descriptors };
        let process = mapped.spawn().map_err(|cause| engine(operation, cause))?;
        drop((input, output, null));
        // Shorter than what a pipe holds, so it does not wait. A worker that died before says so by its silence.
        let _ = std::fs::File::from(orders).write_all(&line);
        let answer =
            Answer { report, buffer: Vec::new(), cancel: task.cancel }.read(operation, task.progress);
        finish(process, answer, operation, &place.to_string())
    }
}

fn finish(
    process: MappedProcess,
    answer: Result<Option<Report>>,
    operation: &'static str,
    place: &str,
) -> Result<Report> {
    if !matches!(answer, Ok(None)) {
        // It said its last word, or is not listened to any more.
        process.kill();
        let _ = process.wait();
        return answer.map(Option::unwrap_or_default);
    }
    let ended = match process.wait().map_err(|cause| engine(operation, cause))? {
        Some(code) => format!("with code {code}"),
        None => "by a signal, as when memory runs out".to_owned(),
    };
    Err(fail(
        ErrorKind::Unexpected,
        operation,
        format!("the worker `{place}` ended {ended} and without a report"),
    )
    .with_hint("`sandbar doctor` says whether the executable is the right one"))
}

/// What a worker says, line by line.
struct Answer<'a> {
    report: OwnedFd,
    buffer: Vec<u8>,
    cancel: Option<&'a Cancel>,
}

impl Answer<'_> {
    /// `None` means that it ended without its last line.
    fn read(mut self, operation: &'static str, progress: &mut dyn FnMut(Progress)) -> Result<Option<Report>> {
        while let Some(line) = self.next(operation)? {
            match serde_json::from_slice(&line) {
                Ok(Line::Progress(far)) => progress(far),
                Ok(Line::Done(report)) => return Ok(Some(report)),
                Ok(Line::Failed(form)) => return Err(form.into_error(operation)),
                Err(_) => {
                    let why = "the worker's answer can't be understood";
                    return Err(fail(ErrorKind::Protocol, operation, why));
                }
            }
        }
        Ok(None)
    }

    fn next(&mut self, operation: &'static str) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
            }
            if self.buffer.len() > MAX_LINE {
                return Err(fail(ErrorKind::Protocol, operation, "the worker's answer has no end"));
            }
            if self.more(operation)? == 0 {
                return Ok(None);
            }
        }
    }

    fn more(&mut self, operation: &'static str) -> Result<usize> {
        let broken = |cause: Errno| io_error(operation, "the pipe of a worker", cause);
        let end = Instant::now() + SILENCE;
        loop {
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now()))
                .map_err(|_| broken(Errno::INVAL))?;
            let mut watched = vec![PollFd::new(&self.report, PollFlags::IN)];
            watched.extend(self.cancel.map(|cancel| PollFd::new(&*cancel.event, PollFlags::IN)));
            match poll(&mut watched, Some(&left)) {
                Ok(0) => {
                    let why = format!("the worker said nothing for {} s", SILENCE.as_secs());
                    return Err(fail(ErrorKind::Timeout, operation, why));
                }
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(cause) => return Err(broken(cause)),
            }
            if watched.get(1).is_some_and(|cancel| !cancel.revents().is_empty()) {
                return Err(fail(ErrorKind::Unexpected, operation, "it was cancelled"));
            }
            let mut chunk = [0; 4096];
            match rustix::io::read(&self.report, &mut chunk) {
                Ok(read) => {
                    self.buffer.extend_from_slice(&chunk[..read]);
                    return Ok(read);
                }
                Err(Errno::INTR) => {}
                Err(cause) => return Err(broken(cause)),
            }
        }
    }
}

impl std::fmt::Debug for Task<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task").field("job", &self.job).finish_non_exhaustive()
    }
}
