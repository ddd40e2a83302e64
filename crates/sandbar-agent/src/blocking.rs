//! Threads for operations that may block on a disk. There are none while nothing is to be done.
//!
//! Programs in the sandbox can use up its limit on processes, which counts threads too. Then an operation is refused;
//! it is not run on the serving thread, which must go on ending what ran amok, and which a file under a lease would
//! hold up for as long as the guest likes.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io, thread};

use sandbar_wire::envd::{Code, HttpError, RpcError, reason};
use tokio::sync::oneshot;

/// Most threads.
const MAX_THREADS: usize = 4;
/// How long a thread waits for more work before it ends: idle agents should have none.
const KEEP_ALIVE: Duration = Duration::from_millis(500);
/// Their stacks. Nothing recurses over what the guest has made.
const STACK_BYTES: usize = 512 << 10;

thread_local! {
    /// Of the one serving thread.
    static POOL: Arc<Pool> = Arc::default();
}

/// Runs something that may block, off the thread that serves everything.
pub(crate) async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failed> {
    let (done, result) = oneshot::channel();
    let job = Box::new(move || {
        // Whoever asked may have left.
        let _ = done.send(work());
    });
    POOL.with(|pool| submit(pool, job)).map_err(Failed::NoThread)?;
    result.await.map_err(|_| Failed::Panicked)
}

/// Why an operation was not done.
#[derive(Debug)]
pub(crate) enum Failed {
    /// No thread can be made.
    NoThread(io::Error),
    /// A fault of the agent's.
    Panicked,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoThread(error) => write!(
                f,
                "no thread can be started for the operation: the sandbox's limit on processes is reached ({error}); \
                 end some of its processes, or give it a higher limit"
            ),
            Self::Panicked => f.write_str("the operation was broken off by a fault of the agent"),
        }
    }
}

impl From<Failed> for RpcError {
    fn from(failed: Failed) -> Self {
        let text = failed.to_string();
        match failed {
            Failed::NoThread(_) => {
                Self::new(Code::ResourceExhausted, text).with_reason(reason::PROCESS_LIMIT)
            }
            Failed::Panicked => Self::new(Code::Internal, text),
        }
    }
}

impl From<Failed> for HttpError {
    fn from(failed: Failed) -> Self {
        Self::new(if matches!(failed, Failed::NoThread(_)) { 507 } else { 500 }, failed.to_string())
    }
}

impl From<Failed> for io::Error {
    fn from(failed: Failed) -> Self {
        Self::other(failed.to_string())
    }
}

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Pool {
    work: Mutex<Work>,
    more: Condvar,
}

#[derive(Default)]
struct Work {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Pool {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn submit(pool: &Arc<Pool>, job: Job) -> io::Result<()> {
    let mut work = pool.work();
    work.jobs.push_back(job);
    if work.idle >= work.jobs.len() {
        pool.more.notify_one();
        return Ok(());
    }
    if work.threads == MAX_THREADS {
        return Ok(());
    }
    let for_thread = pool.clone();
    let name = "agent-disk".to_owned();
    match thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(move || serve(&for_thread)) {
        Ok(_) => work.threads += 1,
        // Those that there are get to it.
        Err(_) if work.threads > 0 => pool.more.notify_one(),
        Err(error) => {
            work.jobs.pop_back();
            return Err(error);
        }
    }
    Ok(())
}

fn serve(pool: &Pool) {
    let mut work = pool.work();
    loop {
        if let Some(job) = work.jobs.pop_front() {
            drop(work);
            // Whoever waits sees that no result came.
            let _ = catch_unwind(AssertUnwindSafe(job));
            work = pool.work();
            continue;
        }
        work.idle += 1;
        let (woken, waited) =
            pool.more.wait_timeout(work, KEEP_ALIVE).unwrap_or_else(PoisonError::into_inner);
        work = woken;
        work.idle -= 1;
        if waited.timed_out() && work.jobs.is_empty() {
            work.threads -= 1;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    #[test]
    fn operations_overlap_and_threads_are_bounded() {
        block_on(async {
            let (sender, receiver) = std::sync::mpsc::channel::<u8>();
            let waits = tokio::task::LocalSet::new();
            waits
                .run_until(async {
                    let blocked = tokio::task::spawn_local(run(move || receiver.recv().unwrap()));
                    for number in 0..100 {
                        assert_eq!(run(move || number).await.unwrap(), number);
                    }
                    sender.send(7).unwrap();
                    assert_eq!(blocked.await.unwrap().unwrap(), 7);
                })
                .await;
            assert!(POOL.with(|pool| pool.work().threads) <= MAX_THREADS);
        });
    }

    #[test]
    fn a_fault_is_an_error_and_the_thread_goes_on() {
        block_on(async {
            let failed = run(|| panic!("as a test of what a fault does")).await;
            assert!(matches!(failed, Err(Failed::Panicked)));
            assert_eq!(run(|| 1).await.unwrap(), 1);
        });
    }
}
