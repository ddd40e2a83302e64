use std::sync::Arc;
use std::time::{Duration, Instant};

use super::processes::{self, Tree};
use super::shared::Shared;
use super::usage::{Failures, What, count};

/// Longest share of the time that goes into counting what is held: one part in this many.
const REST: u32 = 10;
/// How long a count is good while nothing but the agent runs: nobody is there to change it.
const STALE: Duration = Duration::from_secs(30);

/// Watches how much memory a sandbox has, where no control group does: what its processes have mapped, and what they hold without that.
#[derive(Debug, Default)]
pub(super) struct MemoryWatch {
    held: Option<Held>,
    failures: Failures,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    bytes: u64,
    /// Whether anything ran that may have changed it since.
    busy: bool,
    at: Instant,
    took: Duration,
}

impl MemoryWatch {
    /// Why the limit is to be taken for exceeded, if it is.
    pub(super) async fn exceeded(&mut self, shared: &Arc<Shared>, limit: u64, tree: &Tree) -> Option<String> {
        let busy = tree.is_busy();
        if self.held.is_none_or(|held| is_due(&held, busy)) {
            let begun = Instant::now();
            let counted = count(shared, What::Memory).await;
            let took = begun.elapsed();
            let before = self.held.map_or(0, |held| held.bytes);
            let bytes = counted.as_ref().map_or(before, |usage| usage.memory_bytes);
            self.held = Some(Held { bytes, busy, at: Instant::now(), took });
            match counted {
                Ok(_) => self.failures.forget(),
                Err(why) if self.failures.add() => {
                    return Some(format!("the memory it holds can't be counted: {}", why.message()));
                }
                Err(_) => {}
            }
        }
        let held = self.held.map_or(0, |held| held.bytes);
        // The cheap look counts too much, never too little.
        if tree.resident_bytes.saturating_add(held) <= limit {
            return None;
        }
        let bytes = processes::exact(tree, held).await;
        (bytes > limit).then(|| format!("{bytes} bytes of memory are above the limit of {limit}"))
    }
}

fn is_due(held: &Held, busy: bool) -> bool {
    let since = held.at.elapsed();
    since >= held.took * REST && (busy || held.busy || since >= STALE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_counted_where_nobody_is_there_to_change_it() {
        let held = Held { bytes: 1, busy: false, at: Instant::now(), took: Duration::ZERO };
        assert!(!is_due(&held, false));
        assert!(is_due(&held, true));
        assert!(is_due(&Held { busy: true, ..held }, false), "something ran when it was counted");
        assert!(!is_due(&Held { took: Duration::from_secs(1), ..held }, true), "not all the time");
        let old = Held { at: Instant::now().checked_sub(STALE).unwrap(), ..held };
        assert!(is_due(&old, false));
    }
}
