use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
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
const OPTIONS: &str = "noatime,nosuid,nodev";

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
    let file = path.join(FILE);
    let by_hand = format!("mount -t btrfs -o loop,{OPTIONS} {} {}", file.display(), path.display());
    // One that is mounted where this process does not see it (a service may have mounts of its own) is the same file system here, not a second one over
    // the same file.
    let (options, source) = match device_of(&file) {
        Some(device) => (OPTIONS.to_owned(), device),
        None => (format!("loop,{OPTIONS}"), file),
    };
    let arguments: [PathBuf; 6] =
        ["-t".into(), "btrfs".into(), "-o".into(), options.into(), source, path.to_owned()];
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

/// The loop device that has the file already.
fn device_of(file: &Path) -> Option<PathBuf> {
    let devices = std::fs::read_dir("/sys/block").ok()?.flatten().map(|entry| entry.file_name());
    let has_it = |name: &std::ffi::OsString| {
        let of = Path::new("/sys/block").join(name).join("loop/backing_file");
        std::fs::read(of).is_ok_and(|text| text.trim_ascii_end() == file.as_os_str().as_bytes())
    };
    devices.into_iter().find(has_it).map(|name| Path::new("/dev").join(name))
}
