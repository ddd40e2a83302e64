use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::host::UserCounts;

/// A new user namespace takes its maker's soft limits as what all its ids together may have of its owner's counts (since
/// Linux 5.14). So they are lowered while it is made; dropping this raises them again. A limit of a process is of all
/// its threads, so another thread has the lower ones for that moment.
#[derive(Debug)]
pub(super) struct Ceiling {
    before: Vec<(Resource, Rlimit)>,
}

impl Ceiling {
    pub(super) fn lower(counts: &UserCounts) -> Result<Self, Errno> {
        let mut ceiling = Self { before: Vec::new() };
        for (resource, count) in [
            (Resource::Sigpending, counts.signals),
            (Resource::Msgqueue, counts.message_bytes),
            (Resource::Memlock, counts.locked_bytes),
        ] {
            let now = getrlimit(resource);
            let Some(count) = count.filter(|count| now.current.is_none_or(|now| now > *count)) else {
                continue;
            };
            setrlimit(resource, Rlimit { current: Some(count), maximum: now.maximum })?;
            ceiling.before.push((resource, now));
        }
        Ok(ceiling)
    }
}

impl Drop for Ceiling {
    fn drop(&mut self) {
        for (resource, limit) in self.before.drain(..) {
            // Up to the hard limit anybody may.
            let _ = setrlimit(resource, limit);
        }
    }
}
