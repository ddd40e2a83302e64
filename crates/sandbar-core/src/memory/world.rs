use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use super::disk::{Disk, NodeId};
use super::fault::Faults;
use super::machine::Machine;
use super::program::Registry;
use crate::{
    DeadlineAction, EndCause, Error, Result, SandboxId, SandboxRecord, Template, TemplateId, UsageEntry,
    VolumeName,
};

/// The backend's name.
pub(super) const BACKEND: &str = "memory";

/// The name of the template that sandboxes boot from by default.
pub(super) const DEFAULT_TEMPLATE: &str = "emulated";

/// `SIGKILL`, which ends what a sandbox's end ends.
pub(super) const SIGKILL: i32 = 9;

/// The disk, shared with all that has a file open.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedDisk(Arc<Mutex<Disk>>);

impl SharedDisk {
    pub(super) fn lock(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything that a provider holds.
#[derive(Debug)]
pub(super) struct World {
    pub(super) disk: SharedDisk,
    pub(super) faults: Faults,
    pub(super) programs: Arc<Registry>,
    /// The folder that sandboxes without a template are copies of.
    pub(super) base: NodeId,
    held: Mutex<Held>,
}

/// What there is, by name. Its lock is taken before the disk's.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) machines: BTreeMap<SandboxId, Arc<Machine>>,
    pub(super) templates: BTreeMap<TemplateId, StoredTemplate>,
    pub(super) volumes: BTreeMap<VolumeName, StoredVolume>,
    pub(super) next_id: u64,
    /// What those that ended had used, oldest first.
    pub(super) ended: VecDeque<UsageEntry>,
}

#[derive(Clone, Debug)]
pub(super) struct StoredTemplate {
    pub(super) template: Template,
    pub(super) root: NodeId,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct StoredVolume {
    pub(super) created_at: Timestamp,
    pub(super) root: NodeId,
}

impl World {
    pub(super) fn new(programs: Registry) -> Self {
        let disk = SharedDisk::default();
        let base = super::create::base_tree(&mut disk.lock(), &programs);
        Self {
            disk,
            faults: Faults::default(),
            programs: Arc::new(programs),
            base,
            held: Mutex::new(Held::default()),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sandbox with this id. One whose deadline has passed meets it first.
    pub(super) fn machine(&self, id: &SandboxId) -> Option<Arc<Machine>> {
        let machine = self.lock().machines.get(id).cloned()?;
        if machine.is_due() {
            self.meet_deadline(&machine);
            return self.lock().machines.get(id).cloned();
        }
        Some(machine)
    }

    /// The sandbox with this id, or `NotFound`.
    pub(super) fn require(&self, id: &SandboxId, operation: &'static str) -> Result<Arc<Machine>> {
        self.machine(id)
            .ok_or_else(|| Error::not_found(operation, format!("sandbox `{id}`")).with_backend(BACKEND))
    }

    /// All records, by id.
    pub(super) fn records(&self) -> Vec<SandboxRecord> {
        let ids: Vec<SandboxId> = self.lock().machines.keys().cloned().collect();
        ids.iter().filter_map(|id| Some(self.machine(id)?.record())).collect()
    }

    /// Does what is to be done at a deadline.
    pub(super) fn meet_deadline(&self, machine: &Machine) {
        match machine.on_deadline() {
            DeadlineAction::Destroy => {
                self.end(&machine.id, EndCause::Deadline);
            }
            DeadlineAction::Pause => machine.sleep_at_deadline(),
        }
    }

    /// Ends a sandbox and frees what it held.
    pub(super) fn destroy(&self, id: &SandboxId) -> bool {
        self.end(id, EndCause::Destroyed)
    }

    /// Takes back a sandbox that was never ready.
    pub(super) fn undo(&self, id: &SandboxId) {
        let machine = self.lock().machines.remove(id);
        if let Some(machine) = machine {
            self.free(&machine);
        }
    }

    fn end(&self, id: &SandboxId, cause: EndCause) -> bool {
        let Some(machine) = self.lock().machines.get(id).cloned() else { return false };
        let entry = super::usage::entry(&machine, cause);
        // At one moment: who finds it gone finds how it ended.
        let mut held = self.lock();
        if held.machines.remove(id).is_none() {
            return false;
        }
        held.ended.push_back(entry);
        if held.ended.len() > super::usage::KEPT_ENTRIES {
            held.ended.pop_front();
        }
        drop(held);
        self.free(&machine);
        true
    }

    fn free(&self, machine: &Machine) {
        machine.end();
        self.disk.lock().drop_tree(machine.root);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for machine in self.lock().machines.values() {
            machine.end();
        }
    }
}
