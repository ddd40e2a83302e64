//! The `host` template: a root file system from the host's own programs and a named list of its settings. And what lies below every other one.

mod accounts;
mod include;
mod roots;
mod skeleton;

pub use include::INCLUDED_ETC;
pub use roots::{HostRoots, fingerprint};
pub use skeleton::{SKELETON_ROOT, SKELETON_USR, Skeleton, build_bare, build_skeleton, open_bare};
