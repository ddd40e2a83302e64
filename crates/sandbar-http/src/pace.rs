//! How fast one may ask.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a call waits for its turn by default.
const DEFAULT_LONGEST: Duration = Duration::from_secs(30);

/// As many keys are kept before those that no longer matter are dropped.
const KEYS: usize = 1024;

/// A rate for everything with the same key, such as an action on one thing: `burst` at once, and one more each `interval`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    key: String,
    interval: Duration,
    burst: u32,
}

impl Pace {
    /// As many as `burst` (at least one) at once, and one more each `interval`.
    pub fn new(key: impl Into<String>, interval: Duration, burst: u32) -> Self {
        Self { key: key.into(), interval, burst: burst.max(1) }
    }

    /// How far ahead of the steady rate one may be.
    fn lead(&self) -> Duration {
        self.interval.saturating_mul(self.burst - 1)
    }
}

/// Gives turns, in the order in which they were asked for. A clone gives turns from the same rates: one is shared by all clients of an account.
///
/// A turn is reserved when it is asked for, so that nobody starves, and who would wait too long is told at once and reserves nothing. Who
/// gives up waiting leaves the turn unused.
#[derive(Clone, Debug)]
pub struct Pacer {
    /// When the bucket of a key would be full again. One that is full is as good as one that isn't there.
    full: Arc<Mutex<HashMap<String, Instant>>>,
    longest: Duration,
}

/// The turn would come later than anyone waits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooFar {
    pub(crate) key: String,
    pub(crate) wait: Duration,
    pub(crate) longest: Duration,
}

impl Default for Pacer {
    fn default() -> Self {
        Self::new(DEFAULT_LONGEST)
    }
}

impl Pacer {
    /// One where nobody waits longer than `longest` for a turn.
    pub fn new(longest: Duration) -> Self {
        Self { full: Arc::default(), longest }
    }

    /// Waits for a turn that keeps all of these.
    pub(crate) async fn turn(&self, paces: &[Pace]) -> Result<(), TooFar> {
        if !paces.is_empty() {
            tokio::time::sleep_until(self.reserve(paces, Instant::now())?).await;
        }
        Ok(())
    }

    /// Gives no turn at this pace for so long: the server said that it is asked too often.
    pub(crate) fn hold(&self, pace: &Pace, wait: Duration) {
        let until =
            Instant::now().checked_add(wait.min(self.longest)).and_then(|at| at.checked_add(pace.lead()));
        if let Some(until) = until {
            let mut full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
            let at = full.entry(pace.key.clone()).or_insert(until);
            *at = until.max(*at);
        }
    }

    fn reserve(&self, paces: &[Pace], now: Instant) -> Result<Instant, TooFar> {
        let mut full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        if full.len() >= KEYS {
            full.retain(|_, at| *at > now);
        }
        let mut turn = now;
        for pace in paces {
            let at = full.get(&pace.key).and_then(|at| at.checked_sub(pace.lead())).unwrap_or(now).max(now);
            let wait = at - now;
            if wait > self.longest {
                return Err(TooFar { key: pace.key.clone(), wait, longest: self.longest });
            }
            turn = turn.max(at);
        }
        for pace in paces {
            let at = full.entry(pace.key.clone()).or_insert(turn);
            let next = turn.max(*at);
            *at = next.checked_add(pace.interval).unwrap_or(next);
        }
        Ok(turn)
    }
}

#[cfg(test)]
mod tests;
