//! Tidying up after the dead: every command that writes finishes what others began. Bounded, and safe with others at it: whoever has a
//! folder's lock acts on it.

use sandbar_core::SandboxId;
use sandbar_observe::Role;

use crate::audit::{AuditedEnd, Left};
use crate::error::Lookup;
use crate::home::{Folder, Home, Lock};
use crate::id::random_bytes;
use crate::observe::{Observed, is_over, is_overdue};
use crate::store::{LayerId, StoreLock, sweep_layers};
use crate::unseat::unseat;
use crate::{teardown, template};

/// Sandboxes that one command looks at: a look takes microseconds, so this stays far below the time that a creation takes.
const LOOKED_AT: usize = 64;
/// Leftovers that one command removes.
const REMOVED: usize = 16;
/// Layers that one command removes: each may hold a whole system.
const LAYERS_REMOVED: usize = 2;

/// What there is to do.
#[derive(Debug)]
pub(crate) struct Work {
    home: Home,
    dead: Vec<SandboxId>,
    trash: Vec<SandboxId>,
}

impl Work {
    /// Looks for leftovers, without changing anything. `None` means that there is nothing to do. What can't be looked at is left to the command
    /// that needs it.
    pub(crate) fn find(home: Home) -> Option<Self> {
        let mut ids = home.ids().unwrap_or_default();
        if ids.len() > LOOKED_AT {
            // Not always the same ones.
            let random = random_bytes(2).unwrap_or_else(|_| vec![0, 0]);
            let start = usize::from(u16::from_le_bytes([random[0], random[1]])) % ids.len();
            ids.rotate_left(start);
            ids.truncate(LOOKED_AT);
        }
        ids.retain(|id| is_left(&home, id));
        ids.truncate(REMOVED);
        let mut trash = home.trashed().unwrap_or_default();
        trash.truncate(REMOVED);
        let _ = template::sweep(&home, REMOVED);
        let _ = home.sweep_volumes(REMOVED);
        let _ = sweep_layers(&home, LAYERS_REMOVED);
        if ids.is_empty() && trash.is_empty() { None } else { Some(Self { home, dead: ids, trash }) }
    }

    /// Removes them. What does not go is left to the next command; a command that names it gets the error.
    pub(crate) fn run(self) {
        for id in &self.dead {
            let _ = remove(&self.home, id);
        }
        for id in &self.trash {
            let _ = teardown::empty_trash(&self.home, id);
        }
    }
}

/// Removes moments of sandboxes that nobody needs since one ended, where nobody holds the store: nobody is kept waiting for that. Layers of templates go with those.
pub(crate) fn drop_layers(home: &Home) {
    if home.layers().is_ok_and(|layers| layers.iter().any(LayerId::is_snapshot))
        && let Ok(Some(lock)) = StoreLock::take_now(home, "clean up")
    {
        let _ = home.remove_unused_layers(&lock, LAYERS_REMOVED);
    }
    let _ = sweep_layers(home, LAYERS_REMOVED);
}

/// Whether nothing is left to guard in the folder of `id`.
pub(crate) fn is_left(home: &Home, id: &SandboxId) -> bool {
    let Ok(Some(folder)) = Folder::open(home, id) else { return false };
    match folder.shim_lives() {
        Ok(true) => {
            return folder.record().is_ok_and(|record| record.is_some_and(|record| is_overdue(&record)));
        }
        Ok(false) => {}
        Err(_) => return false,
    }
    match Observed::look(home, id, "clean up") {
        Ok(Some(seen)) => !seen.guarded && is_over(&seen.record).is_ok_and(|why| why.is_some()),
        Ok(None) => true,
        Err(_) => false,
    }
}

/// Removes it, if it still is what nobody guards; `None` means that it is not, or that somebody else is at it.
pub(crate) fn remove(home: &Home, id: &SandboxId) -> Lookup<()> {
    let busy = |cause| crate::error::unknown("clean up", id.as_str(), cause);
    let Some(folder) = Folder::open(home, id).map_err(busy)? else { return Ok(None) };
    let lock = match Lock::take(&folder).map_err(busy)? {
        Some(lock) => Some(lock),
        None if folder.record().is_ok_and(|record| record.is_some_and(|record| is_overdue(&record))) => {
            unseat(&folder).map_err(|cause| crate::error::unknown("clean up", id.as_str(), cause))?
        }
        None => None,
    };
    let Some(lock) = lock else { return Ok(None) };
    // Only now is it certain that nobody else acts on it: look again.
    if !folder.is_in_place(home).map_err(busy)? {
        return Ok(None);
    }
    let record = folder.record().map_err(|cause| crate::error::unknown("clean up", id.as_str(), cause))?;
    let over = match &record {
        None => true,
        Some(record) => is_over(record).is_ok_and(|why| why.is_some()),
    };
    if over {
        let ending = teardown::Ending::of_found(record.as_ref());
        let told = AuditedEnd::begin(record.as_ref(), Role::Caller, ending.cause);
        let ended = teardown::tear_down(home, &folder, record, &lock, teardown::Groups::Unknown, ending);
        told.over(&ended, Left::Nothing, None);
        ended?;
    }
    Ok(Some(()))
}
