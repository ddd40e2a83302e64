//! Folders and files of the host in a sandbox, and what is refused of them.

use std::os::fd::OwnedFd;
use std::path::Path;

use sandbar_core::{Error, ErrorKind, Result};
use sandbar_engine::Host;
use sandbar_engine::mount_source::Allowed;

use crate::error::{engine, fail};
use crate::shim::protocol::MountOrder;

/// Opens what is to be mounted, and refuses what would hand the host over: control sockets, and the data folder itself.
pub(crate) fn open_all(mounts: &[MountOrder], home: &Path) -> Result<Vec<OwnedFd>> {
    mounts
        .iter()
        .map(|mount| {
            sandbar_engine::mount_source::open(&mount.source, home, &Allowed::default()).map_err(|cause| {
                let not_found = cause.is_not_found();
                let error = engine("create", cause);
                if not_found {
                    let source = mount.source.display();
                    return fail(ErrorKind::NotFound, "create", format!("mount source `{source}` does not exist"))
                        .with_source(error);
                }
                error
            })
        })
        .collect()
}

/// A limit that was demanded and that the kernel does not keep here.
pub(crate) fn not_enforced(name: &str, watched: bool, host: &Host) -> Error {
    let state = if watched { "only watched" } else { "not kept at all" };
    let why = host.cgroups.reason.as_deref().unwrap_or("this machine has no means to enforce it");
    let why = if name == "disk" { "no file system here counts a sandbox' folders" } else { why };
    Error::unsupported("create", format!("an enforced {name} limit"), format!("it is {state} here: {why}"))
        .with_backend(crate::config::BACKEND)
        .with_hint("leave the limit out, do without the demand for enforcement, or run as root")
}
