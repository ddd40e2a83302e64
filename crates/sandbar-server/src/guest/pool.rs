use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use hyper::client::conn::http1::SendRequest;

/// Idle connections kept to one guest or port: what an SDK has under way at once is mostly less.
const MAX_IDLE: usize = 64;
/// How long a connection to the agent may be idle: it closes them itself after a minute.
const AGENT_IDLE: Duration = Duration::from_secs(30);
/// How long a connection to a port may be idle: common servers close them after five seconds, and who closes first can't be surprised.
const PORT_IDLE: Duration = Duration::from_secs(3);

/// Idle connections to one place, the newest first.
#[derive(Debug)]
pub(super) struct Pool {
    idle: Mutex<Vec<(SendRequest<Body>, Instant)>>,
    longest: Duration,
}

impl Pool {
    pub(super) fn of_agent() -> Self {
        Self { idle: Mutex::default(), longest: AGENT_IDLE }
    }

    pub(super) fn of_port() -> Self {
        Self { idle: Mutex::default(), longest: PORT_IDLE }
    }

    /// A connection that is ready for a request.
    pub(super) fn take(&self) -> Option<SendRequest<Body>> {
        let mut idle = self.hold();
        while let Some((sender, since)) = idle.pop() {
            if sender.is_ready() && since.elapsed() < self.longest {
                return Some(sender);
            }
        }
        None
    }

    /// Keeps a connection that is ready, if there is room.
    pub(super) fn put(&self, sender: SendRequest<Body>) {
        let mut idle = self.hold();
        if sender.is_ready() && idle.len() < MAX_IDLE {
            idle.push((sender, Instant::now()));
        }
    }

    /// Closes those that were idle for too long.
    pub(super) fn sweep(&self) {
        self.hold().retain(|(sender, since)| sender.is_ready() && since.elapsed() < self.longest);
    }

    /// Closes all.
    pub(super) fn clear(&self) {
        self.hold().clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hold().is_empty()
    }

    fn hold(&self) -> std::sync::MutexGuard<'_, Vec<(SendRequest<Body>, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
