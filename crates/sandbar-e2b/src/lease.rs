//! Sandboxes that end with whoever made them.
//!
//! E2B knows deadlines and no owners. An owned sandbox is given a short time, again and again, for as long as its provider is there: however
//! that ends, the sandbox is gone within [`LEASE`].

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sandbar_core::SandboxId;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use crate::api::Api;

/// How long an owned sandbox is given at a time: long enough for a control plane that is away for a minute, short enough that what nobody owns
/// costs little.
pub(crate) const LEASE: Duration = Duration::from_secs(120);

/// Between two renewals: three may fail.
const RENEW: Duration = Duration::from_secs(30);

/// What a provider renews. It ends with the last clone.
#[derive(Clone, Default)]
pub(crate) struct Leases(Arc<Mutex<HashMap<SandboxId, Lease>>>);

struct Lease {
    end: Arc<Mutex<Instant>>,
    _renewing: AbortOnDropHandle<()>,
}

impl Leases {
    /// Renews the time of a sandbox until `lifetime` is over.
    pub(crate) fn start(&self, api: &Api, id: &SandboxId, lifetime: Duration) {
        let end = Arc::new(Mutex::new(after(lifetime)));
        let renewing = tokio::spawn(renew(api.clone(), id.clone(), Arc::clone(&end)));
        let lease = Lease { end, _renewing: AbortOnDropHandle::new(renewing) };
        self.with(|leases| leases.insert(id.clone(), lease));
    }

    /// Sets when a sandbox ends, and says how long it is to be given now; `None` if it is not owned.
    pub(crate) fn set_end(&self, id: &SandboxId, lifetime: Duration) -> Option<Duration> {
        self.with(|leases| {
            let lease = leases.get(id)?;
            *lease.end.lock().unwrap_or_else(PoisonError::into_inner) = after(lifetime);
            Some(lifetime.min(LEASE))
        })
    }

    /// Whether a sandbox is owned.
    pub(crate) fn holds(&self, id: &SandboxId) -> bool {
        self.with(|leases| leases.contains_key(id))
    }

    /// Renews no more.
    pub(crate) fn end(&self, id: &SandboxId) {
        self.with(|leases| leases.remove(id));
    }

    fn with<T>(&self, look: impl FnOnce(&mut HashMap<SandboxId, Lease>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leases")
    }
}

/// The moment after so long; what lies beyond the clock's end is a year away.
fn after(lifetime: Duration) -> Instant {
    Instant::now() + lifetime.min(Duration::from_secs(365 * 24 * 3600))
}

async fn renew(api: Api, id: SandboxId, end: Arc<Mutex<Instant>>) {
    loop {
        sleep(RENEW).await;
        let end = *end.lock().unwrap_or_else(PoisonError::into_inner);
        let left = end.saturating_duration_since(Instant::now());
        if left <= RENEW {
            // What it was given last is its end.
            return;
        }
        match api.set_timeout("renew", &id, left.min(LEASE)).await {
            Ok(Some(())) => {}
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(sandbox = %id, %error, "the time of an owned sandbox was not renewed");
            }
        }
    }
}
