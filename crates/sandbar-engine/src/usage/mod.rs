//! What a sandbox takes of the host that no kernel limit counts: what it wrote, and memory that no process has mapped.
//!
//! A sandbox can hide both from an ordinary look: in folders whose mode keeps everybody out, in files of ids that the caller
//! has no rights over, in files that were deleted and are still open, in shared memory that nobody has attached. So the
//! look is taken by a *counter*: a fork of the caller that joins the sandbox's user namespace, where whoever made the
//! namespace has every right. It is a fork and no program of its own, since that costs a tenth; as the caller may have
//! threads, it allocates nothing, and everything it needs stands ready before the fork. It closes what it inherited (a lock
//! of the caller's would outlive the caller in it), follows no link, stays on the device it began on, and is ended at the
//! bound.
//!
//! Not seen: descriptors on their way between two processes in a socket, and, by an ordinary user, deleted files that are
//! mapped and not open any more.

mod calls;
mod child;
mod descriptors;
mod measure;
mod memory;
mod seen;
mod text;
mod tree;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing {
    pub(crate) use super::memory::segments;
    pub(crate) use super::text::number;
}

pub(crate) use calls::close_others;
pub(crate) use child::Trouble;
pub use measure::{Request, Usage, measure};
pub(crate) use seen::Seen;
pub(crate) use tree::{Level, MAX_DEPTH, count_layer};
