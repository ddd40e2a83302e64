use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, fchmod, flock, fstat, openat, statat};
use rustix::io::Errno;
use sandbar_core::{ErrorKind, Result};

use super::program::Program;
use super::{FILE, init};
use crate::error::{fail, found, io_error};
use crate::home::{Home, open_dir};
use crate::wait;

const OPERATION: &str = "open";
pub(super) const MOUNT: Program = Program { name: "mount", package: "mount" };
pub(super) const UMOUNT: Program = Program { name: "umount", package: "mount" };
/// How long it may take to mount it: after a crash of the machine its log is read first.
pub(super) const BOUND: Duration = Duration::from_secs(60);
/// Nothing in a data folder is to be run with rights of its own from outside, and access times are of no use.
const OPTIONS: &str = "loop,noatime,nosuid,nodev";

/// Mounts the store of a data folder that has one which is not mounted, and answers the folder that is there then; `None` where there is none, or it is
/// mounted. For whoever made sure that the folder is its own.
pub(crate) fn mount_if_needed(home: &Home) -> Result<Option<OwnedFd>> {
    let path = home.path();
    let broken = |cause: Errno| io_error(OPERATION, &format!("`{}/{FILE}`", path.display()), cause);
    let Some(stat) = found(statat(home, FILE, AtFlags::SYMLINK_NOFOLLOW)).map_err(broken)? else {
        return Ok(None);
    };
    let refuse = |kind, why: &str, hint: String| {
        let why = format!("the store of data folder `{}` is not mounted, and {why}", path.display());
        Err(fail(kind, OPERATION, why).with_hint(hint))
    };
    home.check_owner()?;
    if !rustix::process::geteuid().is_root() {
        let hint = "run any `sandbar` command as root, which mounts it".to_owned();
        return refuse(ErrorKind::PermissionDenied, "only root can mount it", hint);
    }
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_uid != 0 {
        let hint = format!("remove `{}/{FILE}`: `sandbar system init-store` did not make it", path.display());
        return refuse(ErrorKind::Config, &format!("`{FILE}` in it is no file of root's"), hint);
    }
    if let Some(name) = init::content(home)? {
        let hint = format!(
            "move `{}/{name}` away, or `{FILE}` if that is what you can do without: mounting would hide the other",
            path.display()
        );
        return refuse(ErrorKind::Config, &format!("`{name}` lies beside it"), hint);
    }
    // Held until it is mounted: of several that come here, one does it.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = openat(home, FILE, flags, Mode::empty()).map_err(broken)?;
    let locked = wait::until(BOUND, || match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(cause) => Err(cause),
    });
    if !locked.map_err(broken)? {
        let hint = "try again when the process that mounts it is done".to_owned();
        return refuse(ErrorKind::Unavailable, "somebody has been mounting it for a minute", hint);
    }
    let there = open_dir(path)?.ok_or_else(|| broken(Errno::NOENT))?;
    if found(statat(&there, FILE, AtFlags::SYMLINK_NOFOLLOW)).map_err(broken)?.is_none() {
        return Ok(Some(there));
    }
    mount(path).map(Some)
}

/// Mounts it, and answers the folder that is there then.
pub(super) fn mount(path: &Path) -> Result<OwnedFd> {
    let by_hand = format!("mount -t btrfs -o {OPTIONS} {0}/{FILE} {0}", path.display());
    if let Some(false) = is_of_the_machine() {
        let why = format!(
            "the store of data folder `{}` is not mounted, and this process has mounts of its own, which others would not see",
            path.display()
        );
        return Err(
            fail(ErrorKind::Config, OPERATION, why).with_hint(format!("mount it outside: `{by_hand}`"))
        );
    }
    let arguments: [PathBuf; 6] =
        ["-t".into(), "btrfs".into(), "-o".into(), OPTIONS.into(), path.join(FILE), path.to_owned()];
    MOUNT.run(OPERATION, &arguments, BOUND).map_err(|error| {
        let why = format!("the store of data folder `{}` can't be mounted: {}", path.display(), error.message());
        let hint = error.hint().map_or_else(
            || {
                format!(
                    "see what `{by_hand}` says; `modprobe -a btrfs loop` loads what the kernel needs, `btrfs check {}/{FILE}` looks at the file",
                    path.display()
                )
            },
            str::to_owned,
        );
        fail(error.kind(), OPERATION, why).with_hint(hint)
    })?;
    let there =
        open_dir(path)?.ok_or_else(|| io_error(OPERATION, &path.display().to_string(), Errno::NOENT))?;
    // As `mkfs` made it, others may look in.
    let broken = |cause: Errno| io_error(OPERATION, &format!("`{}`", path.display()), cause);
    if fstat(&there).map_err(broken)?.st_mode & 0o077 != 0 {
        fchmod(&there, Mode::RWXU).map_err(broken)?;
    }
    Ok(there)
}

/// Whether this process sees the mounts that the machine's first process sees; `None` where that can't be told.
fn is_of_the_machine() -> Option<bool> {
    let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt"));
    Some(of("self").ok()? == of("1").ok()?)
}
