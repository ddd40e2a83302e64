use std::ffi::{CStr, CString, OsStr};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;

use super::mapped;
use super::spread;
use super::walk::{self, Outcome};
use crate::error::Error;
use crate::ids::IdMode;

/// A tree, or a part of it, is still there.
#[derive(Debug)]
pub struct RemoveError {
    /// Entries that could not be removed; 0 where it is not known.
    pub left: u64,
    /// The name of the first of them, as it stands in its folder.
    pub first: String,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl fmt::Display for RemoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "remove `{}`: {}", self.first.escape_debug(), self.source)?;
        if self.left > 1 {
            write!(f, " ({} entries left)", self.left)?;
        }
        Ok(())
    }
}

impl std::error::Error for RemoveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.source.as_ref())
    }
}

/// Removes `name` (one component) in `parent` with everything below it, whoever made it: any depth, any number of entries,
/// any mode. Links are removed, never followed; what is mounted below is left and reported. Not there is fine.
///
/// The processes that wrote in it must be gone. With subordinate ids it runs in a user namespace with the same map.
pub fn remove_tree(parent: BorrowedFd<'_>, name: &OsStr, ids: &IdMode) -> Result<(), RemoveError> {
    let shown = || name.to_string_lossy().into_owned();
    let refuse = |source: Error| RemoveError { left: 0, first: shown(), source: Box::new(source) };
    if name.is_empty() || name == "." || name == ".." || name.as_bytes().contains(&b'/') {
        return Err(refuse(Error::reason("remove", shown(), "one name is needed, not a path")));
    }
    let c_name = CString::new(name.as_bytes())
        .map_err(|_| refuse(Error::reason("remove", shown(), "holds a zero byte")))?;
    let outcome = match ids {
        IdMode::Range { .. } | IdMode::Single => {
            spread::remove_below(parent, &c_name);
            walk::remove(parent, &c_name)
        }
        IdMode::Subordinate(_) => match mapped::remove(parent, &c_name, ids) {
            Ok(outcome) => outcome,
            // Where ids can't be mapped, no sandbox ever ran with them, and what is there is the caller's own.
            Err(cause) => match walk::remove(parent, &c_name) {
                outcome if outcome.left == 0 => outcome,
                _ => return Err(refuse(cause)),
            },
        },
    };
    finish(&outcome)
}

fn finish(outcome: &Outcome) -> Result<(), RemoveError> {
    if outcome.left == 0 {
        return Ok(());
    }
    Err(RemoveError {
        left: outcome.left,
        first: lossy(outcome.name.as_c_str()),
        source: Box::new(io::Error::from_raw_os_error(outcome.errno)),
    })
}

fn lossy(name: &CStr) -> String {
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::fs::{File, Permissions, create_dir, set_permissions};
    use std::os::fd::{AsFd as _, OwnedFd};
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

    use super::*;

    fn remove(dir: &Path, name: &str) -> Result<(), RemoveError> {
        remove_tree(File::open(dir).unwrap().as_fd(), OsStr::new(name), &IdMode::Single)
    }

    #[test]
    fn deeper_than_any_path() {
        let dir = tempfile::tempdir().unwrap();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at: OwnedFd = openat(CWD, dir.path(), flags, Mode::empty()).unwrap();
        for _ in 0..5000 {
            mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = openat(&at, "d", flags, Mode::empty()).unwrap();
        }
        drop(openat(&at, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap());
        drop(at);
        remove(dir.path(), "d").unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn many_entries_and_many_folders() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("t");
        create_dir(&top).unwrap();
        for n in 0..20_000 {
            File::create(top.join(format!("file-{n}"))).unwrap();
        }
        for n in 0..3000 {
            create_dir(top.join(format!("dir-{n}"))).unwrap();
            File::create(top.join(format!("dir-{n}/x"))).unwrap();
        }
        remove(dir.path(), "t").unwrap();
        assert!(!top.exists());
    }

    #[test]
    fn modes_that_keep_the_owner_out() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("t");
        std::fs::create_dir_all(top.join("a/b")).unwrap();
        File::create(top.join("a/b/c")).unwrap();
        for (path, mode) in [("a/b", 0o000), ("a", 0o500), ("", 0o555)] {
            set_permissions(top.join(path), Permissions::from_mode(mode)).unwrap();
        }
        remove(dir.path(), "t").unwrap();
        assert!(!top.exists());
    }

    #[test]
    fn links_are_not_followed_and_odd_names_are_names() {
        let dir = tempfile::tempdir().unwrap();
        let (kept, top) = (dir.path().join("kept"), dir.path().join("t"));
        create_dir(&kept).unwrap();
        File::create(kept.join("precious")).unwrap();
        create_dir(&top).unwrap();
        symlink(&kept, top.join("link")).unwrap();
        symlink("/", top.join("root")).unwrap();
        symlink("link", top.join("\n\u{1b}[31m")).unwrap();
        remove(dir.path(), "t").unwrap();
        assert!(kept.join("precious").exists() && !top.exists());
    }

    #[test]
    fn absent_is_fine_and_a_path_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        remove(dir.path(), "nothing").unwrap();
        for bad in ["", ".", "..", "a/b"] {
            assert!(remove(dir.path(), bad).is_err(), "`{bad}`");
        }
    }
}
