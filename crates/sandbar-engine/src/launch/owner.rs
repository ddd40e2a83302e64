use rustix::io::Errno;
use rustix::process::{DumpableBehavior, dumpable_behavior, set_dumpable_behavior};
use rustix::thread::{CapabilitySets, capabilities, set_capabilities};

use crate::ids::IdMode;
use crate::sys;

/// Whoever makes a user namespace owns it, and the kernel counts what happens inside (inotify instances, keys, pending
/// signals) against the owner's limits too. As root, each sandbox's namespace is therefore made as the first id of its own
/// range: else all sandboxes together would share root's 128 inotify instances.
///
/// The rights of root stay in force meanwhile, since joining a control group needs them. Dropping it changes back.
#[derive(Debug)]
pub(super) struct Owner {
    back: Option<Back>,
}

#[derive(Debug)]
struct Back {
    dumpable: DumpableBehavior,
}

impl Owner {
    pub(super) fn assume(ids: &IdMode) -> Result<Self, Errno> {
        let IdMode::Range { base, .. } = ids else { return Ok(Self { back: None }) };
        let dumpable = dumpable_behavior()?;
        sys::set_effective(*base)?;
        // From here on, a failure changes back.
        let owner = Self { back: Some(Back { dumpable }) };
        let held = capabilities(None)?;
        set_capabilities(None, CapabilitySets { effective: held.permitted, ..held })?;
        // Changing ids made this process undumpable, and then the child may not write its own files in /proc.
        set_dumpable_behavior(DumpableBehavior::Dumpable)?;
        Ok(owner)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(back) = self.back.take() {
            // The real user is root, so this can't be refused.
            let _ = sys::set_effective(0);
            let _ = set_dumpable_behavior(back.dumpable);
        }
    }
}
