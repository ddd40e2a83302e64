//! Who uses what of the store. What can't be read counts as in use: these answers decide about removals.

use std::collections::BTreeSet;

use rustix::fs::renameat;
use sandbar_core::{Result, SandboxId, TemplateId};

use super::layer::LAYERS;
use super::stage::UNFINISHED;
use super::{LayerId, StoreLock, TemplateDocument};
use crate::error::{io_error, unknown};
use crate::home::{Folder, Home, Pending, StoredRecord};
use crate::id::random_text;

impl Home {
    /// The sandboxes that boot from a template, whatever their state.
    pub(crate) fn users_of_template(&self, template: &TemplateId) -> Result<Vec<SandboxId>> {
        let mut users = Vec::new();
        self.each_record("look for users", |record| {
            if record.template == template.as_str() {
                users.push(record.id.clone());
            }
        })?;
        Ok(users)
    }

    /// Layers that a template, a sandbox or the result of a build names.
    pub(crate) fn layers_in_use(&self) -> Result<BTreeSet<LayerId>> {
        let mut used = self.layers_held()?;
        used.extend(self.cached_layers()?);
        Ok(used)
    }

    /// Layers that a template or a sandbox names, or a build on its way; one that is over can do its steps again.
    pub(crate) fn layers_held(&self) -> Result<BTreeSet<LayerId>> {
        let mut used: BTreeSet<_> = self.pinned_layers()?.into_iter().collect();
        for id in self.templates()? {
            if let Some(document) = TemplateDocument::read(self, &id)? {
                used.extend(document.layers);
            }
        }
        self.each_record("look for users", |record| {
            if let Some(boot) = &record.private.boot {
                used.extend(boot.layers.iter().cloned());
            }
            if let Some(Pending::Moving { layer, .. }) = &record.private.pending {
                // It may be all that the sandbox has.
                used.insert(layer.clone());
            }
        })?;
        Ok(used)
    }

    /// Layers that nothing names.
    pub(crate) fn unused_layers(&self) -> Result<Vec<LayerId>> {
        let used = self.layers_in_use()?;
        Ok(self.layers()?.into_iter().filter(|id| !used.contains(id)).collect())
    }

    /// Takes their names from layers that nothing names any more, at most `budget` of them, and answers how many went. Their files go with the next
    /// [`sweep`](super::sweep_layers), for which nobody has to hold the store.
    pub(crate) fn remove_unused_layers(&self, lock: &StoreLock, budget: usize) -> Result<usize> {
        debug_assert!(lock.is_alone());
        self.remove_dead_pins(lock, "remove")?;
        let mut removed = 0;
        for id in self.unused_layers()?.into_iter().take(budget) {
            let broken = |cause| io_error("remove", &format!("layer `{id}`"), cause);
            let name = format!("{UNFINISHED}{}", random_text(12).map_err(broken)?);
            renameat(self, format!("{LAYERS}/{id}"), self, format!("{LAYERS}/{name}")).map_err(broken)?;
            removed += 1;
        }
        Ok(removed)
    }

    /// Looks at the record of every sandbox. A folder without one is no sandbox yet, and its maker holds the store; one that can't be read is an error.
    pub(crate) fn each_record(
        &self,
        operation: &'static str,
        mut look: impl FnMut(&StoredRecord),
    ) -> Result<()> {
        let ids = self
            .ids()
            .map_err(|cause| io_error(operation, &format!("`{}/sandboxes`", self.path().display()), cause))?;
        for id in ids {
            let blind = |cause: &dyn std::fmt::Display| unknown(operation, id.as_str(), cause);
            let Some(folder) = Folder::open(self, &id).map_err(|cause| blind(&cause))? else { continue };
            if let Some(record) = folder.record().map_err(|cause| blind(&cause))? {
                look(&record);
            }
        }
        Ok(())
    }
}
