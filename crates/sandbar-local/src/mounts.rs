//! Folders and files of the host in a sandbox, and what is refused of them.

use std::os::fd::OwnedFd;
use std::path::Path;

use sandbar_core::{Error, ErrorKind, GuestPath, Result};
use sandbar_engine::Host;
use sandbar_engine::mount_source::Allowed;

use crate::doctor::{self, Facts};
use crate::error::{engine, engine_as, fail};
use crate::shim::protocol::MountOrder;

/// Opens what is to be mounted, and refuses what would hand the host over: control sockets, and the data folder itself.
pub(crate) fn open_all(mounts: &[MountOrder], home: &Path) -> Result<Vec<OwnedFd>> {
    mounts
        .iter()
        .map(|mount| {
            sandbar_engine::mount_source::open(&mount.source, home, &Allowed::default()).map_err(|cause| {
                let source = mount.source.display();
                if cause.is_not_found() {
                    return fail(
                        ErrorKind::NotFound,
                        "create",
                        format!("mount source `{source}` does not exist"),
                    )
                    .with_source(cause);
                }
                // Without an error of the kernel's it is a refusal: what is there would hand the host over.
                if cause.errno().is_none() {
                    engine_as(ErrorKind::PermissionDenied, "create", cause)
                } else {
                    engine("create", cause)
                }
            })
        })
        .collect()
}

/// Folders that a sandbox has its own of, and that nothing is mounted below.
const OWN_FOLDERS: &[&str] = &["/proc", "/sys", "/dev", "/run"];

/// Folders that a sandbox can't do without: covered, no program and no user would be found.
const NEEDED_FOLDERS: &[&str] =
    &["/bin", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr", "/usr/bin", "/usr/lib"];

/// Refuses a place in a sandbox that is its own.
pub(crate) fn check_target(target: &GuestPath) -> Result<()> {
    let own = OWN_FOLDERS.iter().find(|own| {
        let bytes = target.as_bytes();
        bytes.strip_prefix(own.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    });
    if let Some(needed) = NEEDED_FOLDERS.iter().find(|needed| target.as_bytes() == needed.as_bytes()) {
        let message = format!("a mount at `{needed}` would hide what the sandbox' programs need");
        return Err(fail(ErrorKind::InvalidInput, "create", message)
            .with_hint("mount at a folder below it, or at `/mnt`"));
    }
    match own {
        None => Ok(()),
        Some(own) => {
            let message = format!("nothing can be mounted at `{target}`: `{own}` is the sandbox' own");
            Err(fail(ErrorKind::InvalidInput, "create", message)
                .with_hint("choose another place, such as `/mnt`"))
        }
    }
}

/// A limit that was demanded and that the kernel does not keep here.
pub(crate) fn not_enforced(name: &str, watched: bool, host: &Host) -> Error {
    let state = if watched { "only watched" } else { "not kept at all" };
    let fault = if name == "disk" { None } else { doctor::groups_fault(&host.cgroups) };
    let why = match fault {
        Some(fault) => fault.says,
        None if name == "disk" => "no file system here counts a sandbox' folders",
        None => "this machine has no means to enforce it",
    };
    let error = Error::unsupported(
        "create",
        format!("an enforced {name} limit"),
        format!("it is {state} here: {why}"),
    )
    .with_backend(crate::config::BACKEND);
    let ways = "leave the limit out, or do without the demand for enforcement";
    match fault {
        Some(fault) => doctor::about(error, fault)
            .with_hint(format!("{ways}; or {}", doctor::hint(fault, &Facts::read(Path::new("/"), None)))),
        None => error.with_hint(ways),
    }
}
