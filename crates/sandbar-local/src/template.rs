//! The `host` template: its skeleton is built once per fingerprint of the host's programs (decision 0005).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, mkdirat, openat, renameat};
use rustix::io::Errno;
use sandbar_core::{Result, TemplateId};
use sandbar_engine::IdMode;
use sandbar_engine::rootfs::{HostRoots, Skeleton, build_bare, build_skeleton, fingerprint, open_bare};

use crate::error::{engine, found, io_error};
use crate::home::Home;
use crate::store::unfinished;

/// The template's name.
pub(crate) const HOST: &str = "host";
const FOLDER: &str = "templates/host";
/// What lies below other root file systems, beside the skeletons of the host's; the number is that of its content.
const BARE: &str = "bare-1";
/// What a skeleton is called while it is being built.
const UNFINISHED: &str = ".new-";

/// The built-in template's id.
pub(crate) fn host_id() -> TemplateId {
    // A constant of the right form, which a test looks at.
    TemplateId::new(HOST).unwrap_or_else(|_| unreachable!("`{HOST}` is a template id"))
}

/// The host's programs as they are now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) roots: HostRoots,
    pub(crate) fingerprint: String,
}

impl Base {
    /// Looks at the host.
    pub(crate) fn observe() -> Result<Self> {
        let roots = HostRoots::observe().map_err(|cause| engine("create", cause))?;
        let fingerprint = fingerprint(&roots);
        Ok(Self { roots, fingerprint })
    }

    /// Opens the skeleton for these programs, and builds it where there is none.
    pub(crate) fn skeleton(&self, home: &Home) -> Result<Skeleton> {
        let dir = built_once(home, &self.fingerprint, |dir| build_skeleton(dir, &self.roots))?;
        open(&dir)
    }
}

/// Opens what lies below every root file system that is not the host's own, and builds it where there is none.
pub(crate) fn bare(home: &Home) -> Result<OwnedFd> {
    let dir = built_once(home, BARE, build_bare)?;
    open_bare(dir.as_fd()).map_err(|cause| engine("create", cause))
}

/// Opens the folder `name` of the built-in ones; where it is not there, it is built first.
fn built_once(
    home: &Home,
    name: &str,
    build: impl FnOnce(BorrowedFd<'_>) -> std::result::Result<(), sandbar_engine::Error>,
) -> Result<OwnedFd> {
    let place = format!("{FOLDER}/{name}");
    let fail = |cause: Errno| io_error("create", &format!("`{}/{place}`", home.path().display()), cause);
    if let Some(dir) = found(open_dir(home, &place)).map_err(fail)? {
        return Ok(dir);
    }
    match mkdirat(home, FOLDER, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(cause) => return Err(fail(cause)),
    }
    // Held while it is built: what nobody holds is wreckage.
    let (name, dir) = unfinished::make_locked(home, FOLDER, UNFINISHED).map_err(fail)?;
    let unfinished = format!("{FOLDER}/{name}");
    let done = build_at(home, &dir, &unfinished, &place, build);
    if !matches!(done, Ok(true)) {
        // A failure, or another process was faster. What can't be removed now, a later command removes.
        let _ = home.remove_tree(FOLDER, &name, &IdMode::Single);
    }
    done?;
    open_dir(home, &place).map_err(fail)
}

/// Builds in `unfinished` and moves it to `place`; `false` means that there is one by now.
fn build_at(
    home: &Home,
    dir: &OwnedFd,
    unfinished: &str,
    place: &str,
    build: impl FnOnce(BorrowedFd<'_>) -> std::result::Result<(), sandbar_engine::Error>,
) -> Result<bool> {
    let fail = |cause: Errno| io_error("create", &format!("`{}/{unfinished}`", home.path().display()), cause);
    build(dir.as_fd()).map_err(|cause| engine("create", cause))?;
    match renameat(home, unfinished, home, place) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST | Errno::NOTEMPTY) => Ok(false),
        Err(cause) => Err(fail(cause)),
    }
}

/// Removes skeletons that somebody began and nobody builds any more; at most `budget` of them.
pub(crate) fn sweep(home: &Home, budget: usize) -> rustix::io::Result<()> {
    let Some(dir) = found(open_dir(home, FOLDER))? else { return Ok(()) };
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::new(dir)? {
        if let Ok(name) = entry?.file_name().to_str()
            && name.starts_with(UNFINISHED)
        {
            names.push(name.to_owned());
        }
    }
    for name in names.into_iter().take(budget) {
        let place = format!("{FOLDER}/{name}");
        // Held until it is gone: who just made it, and has no lock yet, sees that, and makes another.
        if let Some(Some(_held)) = found(unfinished::lock(home, &place))? {
            let _ = home.remove_tree(FOLDER, &name, &IdMode::Single);
        }
    }
    Ok(())
}

fn open_dir(home: &Home, place: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat(home, place, flags, Mode::empty())
}

fn open(dir: &OwnedFd) -> Result<Skeleton> {
    Skeleton::open(dir.as_fd()).map_err(|cause| engine("create", cause))
}
