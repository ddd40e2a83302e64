use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, fsync, mkdirat, openat, renameat};
use rustix::io::Errno;
use sandbar_core::Result;

use super::layer::{DOCUMENT, LAYERS, ROOT, USR};
use super::unfinished::{lock, make_locked};
use super::{LayerDocument, LayerId, StoreIds};
use crate::error::{found, io_error};
use crate::home::Home;

/// What a layer is called while it is being made, and while it is being removed.
pub(super) const UNFINISHED: &str = ".new-";

/// A layer in the making. Dropped, it is taken back; after a crash, [`sweep`] does that.
#[derive(Debug)]
pub(crate) struct Staged<'a> {
    home: &'a Home,
    name: String,
    /// Held with a lock while it is being made: what nobody holds is wreckage.
    dir: OwnedFd,
    ids: StoreIds,
    is_finished: bool,
}

impl<'a> Staged<'a> {
    /// An empty one, whose files are to be of these ids. [`ROOT`] and [`USR`] are for the caller to make: who owns them depends on who fills them.
    pub(crate) fn new(home: &'a Home, ids: StoreIds) -> Result<Self> {
        let broken =
            |cause: Errno| io_error("make a layer", &format!("`{}/{LAYERS}`", home.path().display()), cause);
        let (name, dir) = make_locked(home, LAYERS, UNFINISHED).map_err(broken)?;
        Ok(Self { home, name, dir, ids, is_finished: false })
    }

    /// Its folder, which belongs to the caller and is open to nobody else.
    pub(crate) fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    /// Whose its files are.
    pub(crate) fn ids(&self) -> &StoreIds {
        &self.ids
    }

    /// Where it is, from the data folder.
    pub(crate) fn place(&self) -> String {
        format!("{LAYERS}/{}", self.name)
    }

    /// Makes [`ROOT`] or [`USR`] in it, owned by the caller.
    pub(crate) fn make_part(&self, part: &str) -> Result<OwnedFd> {
        debug_assert!(part == ROOT || part == USR);
        let broken = |cause: Errno| io_error("make a layer", &format!("its `{part}`"), cause);
        mkdirat(&self.dir, part, Mode::from_raw_mode(0o755)).map_err(broken)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        openat(&self.dir, part, flags, Mode::empty()).map_err(broken)
    }

    /// Gives it its name, by which others find it. `false` means that there is a layer of that name already: then this one is taken back.
    pub(crate) fn finish(mut self, id: &LayerId, size_bytes: Option<u64>) -> Result<bool> {
        let broken = |cause: std::io::Error| io_error("make a layer", &format!("layer `{id}`"), cause);
        let document = LayerDocument::new(id.clone(), self.ids.clone(), size_bytes);
        let text = serde_json::to_vec(&document).map_err(|cause| broken(cause.into()))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(&self.dir, DOCUMENT, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|cause| broken(cause.into()))?;
        let mut file = std::fs::File::from(file);
        std::io::Write::write_all(&mut file, &text).map_err(broken)?;
        // What has a name is whole, after a crash of the machine too: the files of it are the caller's to sync.
        fsync(&file).and_then(|()| fsync(&self.dir)).map_err(|cause| broken(cause.into()))?;
        match renameat(self.home, self.place(), self.home, format!("{LAYERS}/{id}")) {
            Ok(()) => {
                self.is_finished = true;
                Ok(true)
            }
            Err(Errno::EXIST | Errno::NOTEMPTY) => Ok(false),
            Err(cause) => Err(broken(cause.into())),
        }
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            // What can't be removed now, a later command removes.
            let _ = self.home.remove_tree(LAYERS, &self.name, &self.ids.to_mode());
        }
    }
}

/// Removes layers that nobody needs any more, and those that somebody began and nobody makes; at most `budget` of them.
pub(crate) fn sweep(home: &Home, budget: usize) -> rustix::io::Result<()> {
    let names = home.entries(LAYERS)?;
    for name in names.into_iter().filter(|name| name.starts_with(UNFINISHED)).take(budget) {
        // Held to the end: its maker may be just about to begin.
        let Some(Some(_held)) = found(lock(home, &format!("{LAYERS}/{name}")))? else { continue };
        let mode = StoreIds::of(&sandbar_engine::Host::observe()).to_mode();
        let _ = home.remove_tree(LAYERS, &name, &mode);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Hold, Layer, StoreLock};
    use super::*;

    fn home() -> (tempfile::TempDir, Home) {
        let scratch = tempfile::tempdir().unwrap();
        let home = Home::ensure(&scratch.path().join("home")).unwrap();
        (scratch, home)
    }

    #[test]
    fn a_layer_is_there_once_it_is_whole_and_only_once() {
        let (_scratch, home) = home();
        let id = LayerId::random().unwrap();
        let staged = Staged::new(&home, StoreIds::Single).unwrap();
        staged.make_part(ROOT).unwrap();
        assert!(Layer::open(&home, &id).unwrap().is_none());
        assert!(staged.finish(&id, Some(3)).unwrap());
        let layer = Layer::open(&home, &id).unwrap().unwrap();
        assert!(layer.usr.is_none() && layer.document.size_bytes == Some(3));
        let again = Staged::new(&home, StoreIds::Single).unwrap();
        again.make_part(ROOT).unwrap();
        assert!(!again.finish(&id, None).unwrap());
        assert_eq!(home.layers().unwrap(), [id]);
    }

    #[test]
    fn what_nobody_finishes_is_swept_and_what_somebody_makes_stays() {
        let (_scratch, home) = home();
        let staged = Staged::new(&home, StoreIds::Single).unwrap();
        mkdirat(&home, "layers/.new-dead", Mode::RWXU).unwrap();
        sweep(&home, 9).unwrap();
        assert_eq!(home.entries(LAYERS).unwrap(), std::slice::from_ref(&staged.name));
        drop(staged);
        assert!(home.entries(LAYERS).unwrap().is_empty());
    }

    #[test]
    fn sharers_share_and_one_is_alone() {
        let (_scratch, home) = home();
        let one = StoreLock::take(&home, Hold::Shared, "test").unwrap();
        let two = StoreLock::take(&home, Hold::Shared, "test").unwrap();
        drop((one, two));
        assert!(StoreLock::take(&home, Hold::Alone, "test").unwrap().is_alone());
    }
}
