use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, flock, fstatvfs, fsync, ftruncate, openat, renameat, unlinkat,
};
use rustix::io::Errno;
use sandbar_core::{ErrorKind, Result};
use sandbar_engine::subvolume;

use super::again::{BOUND, UMOUNT, mount};
use super::program::Program;
use super::{FILE, NEW_FILE};
use crate::aside::aside;
use crate::error::{fail, found, io_error};
use crate::home::{FOLDERS, Home};
use crate::provider::LocalProvider;

const OPERATION: &str = "init-store";
const MKFS: Program = Program { name: "mkfs.btrfs", package: "btrfs-progs" };
/// How long `mkfs` may take: it writes a few MiB, whatever the size.
const MKFS_BOUND: Duration = Duration::from_secs(60);
/// Smallest store, in bytes. `mkfs.btrfs` asks for some 110 MiB, of which little is left for files.
const MIN_SIZE: u64 = 256 << 20;

/// A store that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitializedStore {
    /// The data folder, which it is mounted over.
    pub home: PathBuf,
    /// The file that it is in; not to be seen as long as it is mounted.
    pub file: PathBuf,
    /// How large it can become, in bytes.
    pub size_bytes: u64,
}

impl LocalProvider {
    /// Makes the data folder a btrfs of its own, in a file of at most `size_bytes` that lies in it, and mounts that; whoever opens the folder later,
    /// after the machine was restarted for example, mounts it again. Forks of running sandboxes are snapshots then.
    ///
    /// For root, and for a data folder without content. What fails leaves nothing behind.
    pub async fn init_store(&self, size_bytes: u64) -> Result<InitializedStore> {
        let path = self.home().to_owned();
        aside(OPERATION, move || init(&path, size_bytes)).await
    }
}

fn init(path: &Path, size: u64) -> Result<InitializedStore> {
    if size < MIN_SIZE {
        let why = format!("{size} bytes are too few for a store: expected at least {MIN_SIZE}");
        return Err(fail(ErrorKind::InvalidInput, OPERATION, why).with_hint("say a size such as `20G`"));
    }
    if !rustix::process::geteuid().is_root() {
        return Err(fail(
            ErrorKind::PermissionDenied,
            OPERATION,
            "only root can mount a file as a file system",
        )
        .with_hint("as an ordinary user, set `SANDBAR_HOME` to a folder on btrfs or XFS"));
    }
    let is_new = !path.exists();
    let made = Home::place(path).and_then(|home| fill(&home, size));
    if made.is_err() && is_new {
        // Not if somebody else began with it meanwhile.
        let _ = std::fs::remove_dir(path);
    }
    made
}

fn fill(home: &Home, size: u64) -> Result<InitializedStore> {
    let path = home.path();
    let place = format!("data folder `{}`", path.display());
    let broken = |cause: Errno| io_error(OPERATION, &place, cause);
    match flock(home, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let why = format!("somebody else makes a store in {place}");
            return Err(fail(ErrorKind::Unavailable, OPERATION, why).with_hint("wait until that is done"));
        }
        Err(cause) => return Err(broken(cause)),
    }
    if subvolume::is_on_btrfs(home.as_fd()).map_err(broken)? {
        let why = format!("{place} is on btrfs already");
        return Err(fail(ErrorKind::AlreadyExists, OPERATION, why)
            .with_hint("nothing is to be done: forks of running sandboxes are snapshots there"));
    }
    refuse_content(home)?;
    let room = fstatvfs(home).map_err(broken)?;
    let room = room.f_bavail.saturating_mul(room.f_frsize);
    if size > room {
        let why = format!("{size} bytes are more than the disk has left: expected at most {room}");
        return Err(fail(ErrorKind::LimitExceeded, OPERATION, why)
            .with_hint("say a smaller size, or give `SANDBAR_HOME` another place"));
    }
    let file = Unfinished::make(home, size)?;
    MKFS.run(OPERATION, &["-q".into(), "-L".into(), "sandbar".into(), path.join(NEW_FILE)], MKFS_BOUND)?;
    let file = file.name()?;
    mount(path)?;
    // What somebody made in the folder meanwhile would never be seen again.
    if let Err(error) = refuse_content(home) {
        UMOUNT.run(OPERATION, &[path], BOUND)?;
        return Err(error);
    }
    file.keep();
    Home::ensure(path)?;
    Ok(InitializedStore { home: path.to_owned(), file: path.join(FILE), size_bytes: size })
}

fn refuse_content(home: &Home) -> Result<()> {
    let Some(name) = content(home)? else { return Ok(()) };
    let path = home.path().display();
    let why = format!("data folder `{path}` has content, `{name}`, which a store would hide");
    Err(fail(ErrorKind::AlreadyExists, OPERATION, why).with_hint(format!(
        "destroy its sandboxes and move it away (`mv {path} {path}.old`), or give `SANDBAR_HOME` another place"
    )))
}

/// Something in a data folder besides what is made in an empty one, and a store that is not mounted.
pub(super) fn content(home: &Home) -> Result<Option<String>> {
    let list = |folder: &str| {
        let broken = |cause| io_error(OPERATION, &format!("`{}/{folder}`", home.path().display()), cause);
        home.entries(folder).map_err(broken)
    };
    for name in list(".")? {
        if FOLDERS.contains(&name.as_str()) {
            if let Some(inner) = list(&name)?.first() {
                return Ok(Some(format!("{name}/{inner}")));
            }
        } else if name != "version" && name != FILE && !name.starts_with(".version-") {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// A file that goes with this, unless it is kept. Locked: who sees it under its name waits until it is mounted.
struct Unfinished<'a> {
    home: &'a Home,
    file: OwnedFd,
    name: Option<&'static str>,
}

impl<'a> Unfinished<'a> {
    /// A sparse one; what an earlier attempt left in its place is nobody's.
    fn make(home: &'a Home, size: u64) -> Result<Self> {
        let broken =
            |cause: Errno| io_error(OPERATION, &format!("`{}/{NEW_FILE}`", home.path().display()), cause);
        found(unlinkat(home, NEW_FILE, AtFlags::empty())).map_err(broken)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(home, NEW_FILE, flags, Mode::RUSR | Mode::WUSR).map_err(broken)?;
        let made = Self { home, file, name: Some(NEW_FILE) };
        flock(&made.file, FlockOperation::NonBlockingLockExclusive)
            .and_then(|()| ftruncate(&made.file, size))
            .map_err(broken)?;
        Ok(made)
    }

    /// Gives it the name by which it is mounted; it is whole on the disk by then.
    fn name(mut self) -> Result<Self> {
        let broken =
            |cause: Errno| io_error(OPERATION, &format!("`{}/{FILE}`", self.home.path().display()), cause);
        fsync(&self.file).map_err(broken)?;
        renameat(self.home, NEW_FILE, self.home, FILE).and_then(|()| fsync(self.home)).map_err(broken)?;
        self.name = Some(FILE);
        Ok(self)
    }

    fn keep(mut self) {
        self.name = None;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(name) = self.name {
            let _ = unlinkat(self.home, name, AtFlags::empty());
        }
    }
}
