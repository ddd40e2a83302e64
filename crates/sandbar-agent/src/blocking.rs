use std::io;

/// Threads for operations that may block on a disk.
pub(crate) const MAX_THREADS: usize = 4;
/// How long such a thread waits for more work before it ends: idle agents should have none.
pub(crate) const KEEP_ALIVE: std::time::Duration = std::time::Duration::from_millis(500);
/// Their stacks; the deepest user is a recursive removal.
pub(crate) const STACK_BYTES: usize = 512 << 10;

/// Runs something that may block, off the thread that serves everything.
pub(crate) async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}
