//! Folders that belong to the ids of sandboxes and outlive them: volumes, layers.

mod size;
mod work;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::fs::{Gid, Uid, fchown};
use rustix::io::Errno;

use self::work::MappedWork;
use crate::error::Error;
use crate::ids::{IdMode, USER_ID};

/// How long one change of an owner may take.
const GIVE_BOUND: Duration = Duration::from_secs(10);

/// Makes an opened folder (or file) of the caller's the sandbox user's, where ids are mapped so. `ids` are those of who stores it; with a single id
/// all is the caller's, who is the user inside.
pub fn give_to_user(folder: BorrowedFd<'_>, ids: &IdMode) -> Result<(), Error> {
    const OPERATION: &str = "give to the sandbox' user";
    let fail = |cause: Errno| Error::io(OPERATION, "a folder", cause);
    match ids {
        IdMode::Single => Ok(()),
        IdMode::Range { base, .. } => chown(folder, base + USER_ID).map_err(fail),
        IdMode::Subordinate(_) => {
            let work =
                MappedWork { operation: OPERATION, resource: "a folder", ids, folder, bound: GIVE_BOUND };
            let report = work.run(|folder| {
                chown(folder, USER_ID).map_or_else(Errno::raw_os_error, |()| 0).to_le_bytes()
            })?;
            match i32::from_le_bytes(report) {
                0 => Ok(()),
                errno => Err(fail(Errno::from_raw_os_error(errno))),
            }
        }
    }
}

fn chown(folder: BorrowedFd<'_>, id: u32) -> Result<(), Errno> {
    fchown(folder, Some(Uid::from_raw(id)), Some(Gid::from_raw(id)))
}

/// What a folder holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoredSize {
    /// Bytes that its files take on disk; one with several names counts once.
    pub bytes: u64,
    /// Files, folders and links in it.
    pub entries: u64,
}

/// Counts what an opened folder holds, whatever the modes of what is in it, in bounded memory and at most in `bound`. It may change meanwhile. What
/// could not be counted whole is an error that says why: it must not be taken for little. Nothing of another file system is counted.
pub fn stored_size(folder: BorrowedFd<'_>, ids: &IdMode, bound: Duration) -> Result<StoredSize, Error> {
    size::folder_size(folder, ids, bound).map(|(bytes, entries)| StoredSize { bytes, entries })
}

#[cfg(test)]
mod tests {
    use std::fs::{File, Permissions, create_dir_all, set_permissions, write};
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;
    use crate::host::Host;

    fn ids() -> IdMode {
        let host = Host::observe();
        if host.needs_range() { IdMode::range(1_900_000_000) } else { host.user_id_mode() }
    }

    #[test]
    fn a_folder_is_counted_behind_modes_that_keep_everybody_out() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b");
        create_dir_all(&deep).unwrap();
        write(deep.join("file"), vec![1; 1 << 20]).unwrap();
        std::fs::hard_link(deep.join("file"), dir.path().join("again")).unwrap();
        set_permissions(dir.path().join("a"), Permissions::from_mode(0o000)).unwrap();
        let folder = File::open(dir.path()).unwrap();
        let size = stored_size(folder.as_fd(), &ids(), Duration::from_secs(10)).unwrap();
        assert_eq!(size.entries, 4, "{size:?}");
        assert!((1 << 20..2 << 20).contains(&size.bytes), "{size:?}");
        set_permissions(dir.path().join("a"), Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn time_is_bounded_and_running_out_of_it_is_no_size() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..20_000 {
            File::create(dir.path().join(number.to_string())).unwrap();
        }
        let folder = File::open(dir.path()).unwrap();
        let error = stored_size(folder.as_fd(), &ids(), Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("longer than"), "{error}");
    }

    #[test]
    fn what_is_given_away_is_the_users() {
        let dir = tempfile::tempdir().unwrap();
        let folder = File::open(dir.path()).unwrap();
        give_to_user(folder.as_fd(), &ids()).unwrap();
        let owner = folder.metadata().unwrap().uid();
        match ids() {
            IdMode::Range { base, .. } => assert_eq!(owner, base + USER_ID),
            IdMode::Subordinate(ids) => {
                assert_eq!(owner, ids.uid_base + USER_ID - 1);
                let parent = File::open(dir.path().parent().unwrap()).unwrap();
                let mode = IdMode::Subordinate(ids);
                crate::remove_tree(parent.as_fd(), dir.path().file_name().unwrap(), &mode).unwrap();
            }
            IdMode::Single => assert_eq!(owner, rustix::process::geteuid().as_raw()),
        }
    }
}
