use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, RenameFlags, fchmod, flock, fsync, mkdirat, openat, renameat_with,
    statat,
};
use rustix::io::Errno;
use sandbar_core::{Error, ErrorKind, Result, SandboxId, VolumeName};
use sandbar_engine::{Host, IdMode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::unfinished::{lock, make_locked};
use super::{StoreIds, StoreLock};
use crate::config::BACKEND;
use crate::error::{engine, fail, found, io_error};
use crate::home::Home;
use crate::id::random_text;

/// The folder of all volumes, in the data folder; one more folder in it for each, of its name.
pub(crate) const VOLUMES: &str = "volumes";
/// The file in a volume's folder that tells of it.
const DOCUMENT: &str = "volume.json";
/// The part that sandboxes see.
const DATA: &str = "data";
/// What a volume is called while it is being made. No name of a volume begins like this.
const UNFINISHED: &str = ".new-";
/// What a volume is called while it is being removed.
const REMOVED: &str = ".old-";
/// Longest document that is read, in bytes.
const MAX_DOCUMENT: usize = 1 << 20;
/// The form of a volume's document.
const VERSION: u32 = 1;
/// Mode of what sandboxes see: as that of a home.
const DATA_MODE: u32 = 0o755;

/// What is known of a volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct VolumeDocument {
    pub(crate) version: u32,
    pub(crate) name: VolumeName,
    pub(crate) created_at: Timestamp,
    /// Whose its files are on disk.
    pub(crate) ids: StoreIds,
    /// Keys of a newer version.
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

/// A volume, opened.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) document: VolumeDocument,
    /// What sandboxes see of it.
    pub(crate) data: OwnedFd,
}

impl Volume {
    /// Makes one; `false` means that it is there already, and stays as it is.
    pub(crate) fn create(home: &Home, name: &VolumeName) -> Result<bool> {
        const OPERATION: &str = "create volume";
        if home.has_volume(name)? {
            return Ok(false);
        }
        let staged = Staged::new(home, OPERATION)?;
        let broken = |cause: std::io::Error| io_error(OPERATION, &format!("volume `{name}`"), cause);
        let os = |cause: Errno| broken(cause.into());
        let ids = StoreIds::of(&Host::observe());
        mkdirat(&staged.dir, DATA, Mode::RWXU).map_err(os)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let data = openat(&staged.dir, DATA, flags, Mode::empty()).map_err(os)?;
        fchmod(&data, Mode::from_raw_mode(DATA_MODE)).map_err(os)?;
        sandbar_engine::give_to_user(data.as_fd(), &ids.to_mode())
            .map_err(|cause| engine(OPERATION, cause))?;
        let document = VolumeDocument {
            version: VERSION,
            name: name.clone(),
            created_at: crate::home::now(),
            ids,
            rest: Map::new(),
        };
        let text = serde_json::to_vec_pretty(&document).map_err(|cause| broken(cause.into()))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(&staged.dir, DOCUMENT, flags, Mode::RUSR | Mode::WUSR).map_err(os)?;
        let mut file = std::fs::File::from(file);
        std::io::Write::write_all(&mut file, &text).map_err(broken)?;
        // What has a name is whole, after a crash of the machine too.
        fsync(&file).and_then(|()| fsync(&staged.dir)).map_err(os)?;
        staged.finish(name).map_err(os)
    }

    /// Opens it; `None` means that there is positively no such volume.
    pub(crate) fn open(home: &Home, name: &VolumeName, operation: &'static str) -> Result<Option<Self>> {
        let Some(document) = VolumeDocument::read(home, name)? else {
            return if home.has_volume(name)? { Err(spoilt(home, name, operation)) } else { Ok(None) };
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let place = format!("{VOLUMES}/{name}/{DATA}");
        let data = match openat(home, &place, flags, Mode::empty()) {
            // What its user closed to everybody, an ordinary user's own folder included, is there all the same.
            Err(Errno::ACCESS) => openat(home, &place, flags | OFlags::PATH, Mode::empty()),
            opened => opened,
        };
        let data = data
            .map_err(|cause| io_error(operation, &format!("`{}/{place}`", home.path().display()), cause))?;
        Ok(Some(Self { document, data }))
    }

    /// Opens it for a sandbox with these ids, or says why that can't be.
    pub(crate) fn open_for(home: &Home, name: &VolumeName, ids: &IdMode) -> Result<Self> {
        let volume = Self::open(home, name, "create")?.ok_or_else(|| missing(name))?;
        match volume.document.ids.mismatch(ids) {
            None => Ok(volume),
            Some(why) => {
                Err(Error::unsupported("create", format!("volume `{name}` in this sandbox"), why.to_owned())
                    .with_backend(BACKEND)
                    .with_hint("use a volume that this user made, and leave out writable mounts of the host"))
            }
        }
    }

    /// Bytes that its files take on disk; an error says why there is no count.
    pub(crate) fn size(&self, bound: Duration) -> Result<u64> {
        sandbar_engine::stored_size(self.data.as_fd(), &self.document.ids.to_mode(), bound)
            .map(|size| size.bytes)
            .map_err(|cause| engine("measure volume", cause))
    }

    /// Removes it, unless a sandbox holds it; `false` means that it was positively absent. What can't be looked at counts as holding it.
    pub(crate) fn remove(home: &Home, name: &VolumeName) -> Result<bool> {
        const OPERATION: &str = "remove volume";
        if !home.has_volume(name)? {
            return Ok(false);
        }
        let lock = StoreLock::take(home, super::Hold::Alone, OPERATION)?;
        let users = home.users_of_volume(name)?;
        if !users.is_empty() {
            return Err(attached(name, &users));
        }
        let ids = match VolumeDocument::read(home, name) {
            Ok(Some(document)) => document.ids,
            // It is spoilt, and goes all the same.
            Ok(None) | Err(_) => StoreIds::of(&Host::observe()),
        };
        let broken = |cause: std::io::Error| io_error(OPERATION, &format!("volume `{name}`"), cause);
        let place = format!("{VOLUMES}/{name}");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = found(openat(home, &place, flags, Mode::empty()));
        let Some(dir) = opened.map_err(|cause| broken(cause.into()))? else { return Ok(false) };
        // Held until it is gone, so that nobody else sweeps it away meanwhile.
        let _ = flock(&dir, FlockOperation::NonBlockingLockExclusive);
        let aside = format!("{REMOVED}{}", random_text(12).map_err(|cause| broken(cause.into()))?);
        let new = format!("{VOLUMES}/{aside}");
        let moved = found(renameat_with(home, &place, home, &new, RenameFlags::NOREPLACE));
        if moved.map_err(|cause| broken(cause.into()))?.is_none() {
            return Ok(false);
        }
        // It has no name any more: nobody can begin to use it, and a big one may take its time.
        drop(lock);
        home.remove_tree(VOLUMES, &aside, &ids.to_mode()).map_err(|cause| {
            broken(cause)
                .with_left_behind(format!("`{}/{new}`", home.path().display()))
                .with_hint("the volume is gone by its name; the next command that writes removes the rest")
        })?;
        Ok(true)
    }
}

impl VolumeDocument {
    /// Reads it; `None` means that there is positively no such volume.
    pub(crate) fn read(home: &Home, name: &VolumeName) -> Result<Option<Self>> {
        home.read_document(&format!("{VOLUMES}/{name}/{DOCUMENT}"), MAX_DOCUMENT, VERSION)
    }
}

impl Home {
    /// The names of all volumes, in their order.
    pub(crate) fn volumes(&self) -> Result<Vec<VolumeName>> {
        let names = self.entries(VOLUMES).map_err(|cause| {
            io_error("list volumes", &format!("`{}/{VOLUMES}`", self.path().display()), cause)
        })?;
        let mut names: Vec<_> = names.into_iter().filter_map(|name| VolumeName::new(name).ok()).collect();
        names.sort();
        Ok(names)
    }

    /// Whether a volume is there.
    pub(crate) fn has_volume(&self, name: &VolumeName) -> Result<bool> {
        let seen = found(statat(self, format!("{VOLUMES}/{name}"), AtFlags::SYMLINK_NOFOLLOW));
        Ok(seen.map_err(|cause| io_error("look up", &format!("volume `{name}`"), cause))?.is_some())
    }

    /// The sandboxes that hold a volume, whatever their state.
    pub(crate) fn users_of_volume(&self, name: &VolumeName) -> Result<Vec<SandboxId>> {
        let mut users = Vec::new();
        self.each_record("look for users", |record| {
            if record.private.volumes.iter().any(|volume| volume.name == *name) {
                users.push(record.id.clone());
            }
        })?;
        Ok(users)
    }

    /// The volumes that sandboxes hold, whatever their state.
    pub(crate) fn attached_volumes(&self) -> Result<BTreeSet<VolumeName>> {
        let mut attached = BTreeSet::new();
        self.each_record("look for users", |record| {
            attached.extend(record.private.volumes.iter().map(|volume| volume.name.clone()));
        })?;
        Ok(attached)
    }

    /// Removes what somebody began to make or to remove, and does not any more; at most `budget` of them.
    pub(crate) fn sweep_volumes(&self, budget: usize) -> rustix::io::Result<()> {
        let is_wreck = |name: &String| name.starts_with(UNFINISHED) || name.starts_with(REMOVED);
        for name in self.entries(VOLUMES)?.into_iter().filter(is_wreck).take(budget) {
            // Held to the end: its maker may be just about to begin.
            let Some(Some(_held)) = found(lock(self, &format!("{VOLUMES}/{name}")))? else { continue };
            let _ = self.remove_tree(VOLUMES, &name, &StoreIds::of(&Host::observe()).to_mode());
        }
        Ok(())
    }
}

/// A volume in the making. Dropped, it is taken back; after a crash, [`Home::sweep_volumes`] does that.
#[derive(Debug)]
struct Staged<'a> {
    home: &'a Home,
    name: String,
    /// Held with a lock while it is being made: what nobody holds is wreckage.
    dir: OwnedFd,
    is_finished: bool,
}

impl<'a> Staged<'a> {
    fn new(home: &'a Home, operation: &'static str) -> Result<Self> {
        let broken =
            |cause: Errno| io_error(operation, &format!("`{}/{VOLUMES}`", home.path().display()), cause);
        let (name, dir) = make_locked(home, VOLUMES, UNFINISHED).map_err(broken)?;
        Ok(Self { home, name, dir, is_finished: false })
    }

    /// Gives it its name; `false` means that there is one of that name by now, and this one is taken back.
    fn finish(mut self, name: &VolumeName) -> rustix::io::Result<bool> {
        let from = format!("{VOLUMES}/{}", self.name);
        match renameat_with(self.home, from, self.home, format!("{VOLUMES}/{name}"), RenameFlags::NOREPLACE) {
            Ok(()) => {
                self.is_finished = true;
                Ok(true)
            }
            Err(Errno::EXIST | Errno::NOTEMPTY) => Ok(false),
            Err(cause) => Err(cause),
        }
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            // What can't be removed now, a later command removes.
            let mode = StoreIds::of(&Host::observe()).to_mode();
            let _ = self.home.remove_tree(VOLUMES, &self.name, &mode);
        }
    }
}

fn missing(name: &VolumeName) -> Error {
    Error::not_found("create", format!("volume `{name}`")).with_backend(BACKEND).with_hint(format!(
        "`sandbar volume create {name}` makes it, `sandbar volume ls` shows those that are there"
    ))
}

fn spoilt(home: &Home, name: &VolumeName, operation: &'static str) -> Error {
    let why = format!("`{}/{VOLUMES}/{name}` has no `{DOCUMENT}`", home.path().display());
    fail(ErrorKind::Unexpected, operation, why).with_resource(format!("volume `{name}`"))
}

/// Most sandboxes that a refusal names: the rest of a message stays readable.
const NAMED: usize = 4;

fn attached(name: &VolumeName, users: &[SandboxId]) -> Error {
    let named: Vec<_> = users.iter().take(NAMED).map(|id| format!("`{id}`")).collect();
    let more = users.len().saturating_sub(NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let why = format!("volume `{name}` is attached to sandbox {}{more}", named.join(", "));
    fail(ErrorKind::Conflict, "remove volume", why)
        .with_resource(format!("volume `{name}`"))
        .with_hint("destroy the sandboxes that hold it first")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> (tempfile::TempDir, Home) {
        let scratch = tempfile::tempdir().unwrap();
        let home = Home::ensure(&scratch.path().join("home")).unwrap();
        (scratch, home)
    }

    #[test]
    fn volumes_come_and_go_and_are_made_once() {
        let (_scratch, home) = home();
        let name = VolumeName::new("data.1").unwrap();
        assert!(!home.has_volume(&name).unwrap() && !Volume::remove(&home, &name).unwrap());
        assert!(Volume::create(&home, &name).unwrap());
        let volume = Volume::open(&home, &name, "test").unwrap().unwrap();
        assert!(volume.size(Duration::from_secs(10)).unwrap() < 1 << 16);
        assert!(!Volume::create(&home, &name).unwrap());
        assert_eq!(home.volumes().unwrap(), std::slice::from_ref(&name));
        assert!(Volume::remove(&home, &name).unwrap() && !Volume::remove(&home, &name).unwrap());
        assert!(home.entries(VOLUMES).unwrap().is_empty());
    }

    #[test]
    fn what_nobody_finishes_is_swept_and_what_somebody_makes_stays() {
        let (_scratch, home) = home();
        let staged = Staged::new(&home, "test").unwrap();
        for dead in [".new-dead", ".old-dead"] {
            mkdirat(&home, format!("{VOLUMES}/{dead}"), Mode::RWXU).unwrap();
        }
        home.sweep_volumes(9).unwrap();
        assert_eq!(home.entries(VOLUMES).unwrap(), std::slice::from_ref(&staged.name));
        drop(staged);
        assert!(home.entries(VOLUMES).unwrap().is_empty());
    }

    #[test]
    fn a_volume_without_its_document_is_neither_absent_nor_used() {
        let (_scratch, home) = home();
        let name = VolumeName::new("odd").unwrap();
        mkdirat(&home, format!("{VOLUMES}/{name}"), Mode::RWXU).unwrap();
        assert_eq!(Volume::open(&home, &name, "test").unwrap_err().kind(), ErrorKind::Unexpected);
        assert!(!Volume::create(&home, &name).unwrap());
        assert!(Volume::remove(&home, &name).unwrap());
    }
}
