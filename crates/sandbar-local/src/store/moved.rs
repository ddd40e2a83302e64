//! Writable layers of a sandbox that become a read-only one as they are, by renames: it takes no longer for many bytes than for few.
//!
//! The sandbox' record has [`Pending::Moving`] before the first step and until it names the layer. So what stands in the record decides: with it,
//! [`move_back`] makes all as it was, from whatever step; without it, nothing is to be done.

use std::ffi::OsStr;
use std::os::fd::AsFd as _;

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use sandbar_core::Result;
use sandbar_engine::{IdMode, LAYERS_FOLDER};

use super::layer::{DOCUMENT, LAYERS, MAX_DOCUMENT};
use super::{LayerDocument, LayerId, StoreIds};
use crate::error::{found, io_error};
use crate::home::{Folder, Home, Pending, StoredRecord};
use crate::teardown;

const OPERATION: &str = "fork";
/// Where the layer is put together, in the sandbox' folder: nobody sweeps that.
const STAGE: &str = "layer";

/// Makes a layer of this id of the writable layers in `folder`, which has none afterwards. For whoever holds the sandbox' lock and wrote down what he
/// does; its processes must write nothing any more.
pub(crate) fn move_out(home: &Home, folder: &Folder, id: &LayerId, ids: &IdMode) -> Result<()> {
    let broken = |cause: std::io::Error| io_error(OPERATION, &format!("layer `{id}`"), cause);
    let document = LayerDocument::new(id.clone(), StoreIds::of_sandbox(ids), None);
    let text = serde_json::to_vec(&document).map_err(|cause| broken(cause.into()))?;
    clear(folder).and_then(|()| mkdirat(folder, STAGE, Mode::RWXU)).map_err(|cause| broken(cause.into()))?;
    // First an empty one: file systems have the bytes of a file that replaces another on the disk before that is seen there.
    let place = format!("{STAGE}/{DOCUMENT}");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat(folder, &place, flags, Mode::RUSR | Mode::WUSR).map_err(|cause| broken(cause.into()))?;
    folder.replace_file(&place, &text, MAX_DOCUMENT).map_err(broken)?;
    renameat(folder, LAYERS_FOLDER, folder, format!("{STAGE}/{LAYERS_FOLDER}"))
        .and_then(|()| renameat(folder, STAGE, home, format!("{LAYERS}/{id}")))
        .map_err(|cause| broken(cause.into()))
}

/// Makes all as it was before [`move_out`], whichever of its steps were taken. What was made in place of the layers is removed.
pub(crate) fn move_back(home: &Home, folder: &Folder, id: &LayerId, ids: &IdMode) -> Result<()> {
    let broken = |cause: std::io::Error| io_error(OPERATION, &format!("layer `{id}` taken back"), cause);
    let back = || -> std::io::Result<()> {
        found(renameat(home, format!("{LAYERS}/{id}"), folder, STAGE))?;
        if folder.has_dir(&format!("{STAGE}/{LAYERS_FOLDER}"))? {
            if folder.has_dir(LAYERS_FOLDER)? {
                sandbar_engine::remove_tree(folder.as_fd(), OsStr::new(LAYERS_FOLDER), ids)
                    .map_err(std::io::Error::other)?;
            }
            renameat(folder, format!("{STAGE}/{LAYERS_FOLDER}"), folder, LAYERS_FOLDER)?;
        }
        Ok(clear(folder)?)
    };
    back().map_err(broken)
}

/// Takes back a move that somebody else began, and ends the agent that is not the sandbox' any more; the record says so afterwards. For whoever holds the
/// sandbox' lock.
pub(crate) fn recover(home: &Home, folder: &Folder, record: &mut StoredRecord) -> Result<()> {
    let Some(pending) = record.private.pending.clone() else { return Ok(()) };
    if let Some(agent) = pending.to_end() {
        teardown::end_agent(agent).map_err(|cause| io_error(OPERATION, "an agent of before", cause))?;
    }
    match pending {
        Pending::Moving { layer, .. } => move_back(home, folder, &layer, &record.private.ids)?,
        Pending::Ending(_) => {}
        // For whoever knows its processes.
        Pending::Copying(_) => return Ok(()),
    }
    record.private.pending = None;
    folder.write_record(record).map_err(|cause| io_error(OPERATION, "`record.json`", cause))
}

/// Removes what is left of a layer that was begun.
fn clear(folder: &Folder) -> rustix::io::Result<()> {
    for name in [DOCUMENT.to_owned(), format!("{DOCUMENT}.new")] {
        match unlinkat(folder, format!("{STAGE}/{name}"), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(cause) => return Err(cause),
        }
    }
    found(unlinkat(folder, STAGE, AtFlags::REMOVEDIR)).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::super::Layer;
    use super::*;

    #[test]
    fn whatever_step_it_was_left_at_it_goes_back() {
        let scratch = tempfile::tempdir().unwrap();
        let home = Home::ensure(&scratch.path().join("home")).unwrap();
        let sandbox = sandbar_core::SandboxId::new("s1").unwrap();
        let (folder, _lock) = Folder::create(&home, &sandbox).unwrap().unwrap();
        let place = home.folder_path(&sandbox);
        let file = place.join("fs/upper/file");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "kept").unwrap();
        let id = LayerId::random().unwrap();
        let ids = IdMode::Single;
        for step in 0..4 {
            let stage = place.join(STAGE);
            if step == 3 {
                move_out(&home, &folder, &id, &ids).unwrap();
                assert!(Layer::open(&home, &id).unwrap().is_some() && !file.exists());
                // As a launch does.
                std::fs::create_dir_all(place.join("fs/upper")).unwrap();
            } else if step > 0 {
                std::fs::create_dir(&stage).unwrap();
                std::fs::write(stage.join(DOCUMENT), "").unwrap();
                if step == 2 {
                    std::fs::rename(place.join("fs"), stage.join("fs")).unwrap();
                }
            }
            move_back(&home, &folder, &id, &ids).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept", "step {step}");
            assert!(!stage.exists() && home.layers().unwrap().is_empty(), "step {step}");
        }
    }
}
