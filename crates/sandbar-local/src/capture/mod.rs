//! Making a layer of what a sandbox has on disk, for templates: it is held still, its files are copied by a worker, and what it alone may have is left out
//! (decision 0016).

mod commit;
mod copy;
mod lookup;
mod mounted;
mod paths;
mod scrub;
mod still;

pub(crate) use commit::{check_label, commit, size};
pub(crate) use copy::{Captured, capture, hex};
