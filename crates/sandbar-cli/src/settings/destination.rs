//! Looks before the command runs whether what comes out of it will have a place, so that no work is lost.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::failure::{Failure, Result};
use crate::settings::absolute;
use crate::value::{CopyOut, Existing, Placement};

/// The copy with an absolute destination, which can take it as far as can be seen.
pub(super) fn present(copy: CopyOut) -> Result<CopyOut> {
    let target = absolute(&copy.target)?;
    let copy = CopyOut { target, ..copy };
    let (folder, path) = place(&copy);
    let refuse = |why: String, hint| {
        let what = format!("nothing can be copied to `{}`: {why}", folder.display());
        Err(Failure::usage(sandbar::Error::invalid("parse destination", what).with_hint(hint)))
    };
    match folder.metadata() {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return refuse("it is not a folder".to_owned(), "make the folder first"),
        Err(error) => return refuse(error.to_string(), "make the folder first"),
    }
    if let Err(error) = access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        return refuse(error.to_string(), "choose a folder that you may write in");
    }
    let is_folder = path.symlink_metadata().is_ok_and(|found| found.is_dir());
    if copy.existing == Existing::Keep && is_folder {
        let what = format!("`{}` exists, and folders are not merged", path.display());
        return Err(Failure::usage(
            sandbar::Error::invalid("parse destination", what)
                .with_hint("remove it first, or give `--replace`"),
        ));
    }
    Ok(copy)
}

/// Refuses two copies that would go to the same path.
pub(super) fn check_apart(copies: &[CopyOut]) -> Result<()> {
    let mut places = BTreeMap::new();
    for copy in copies {
        let (_, path) = place(copy);
        if let Some(other) = places.insert(path.clone(), &copy.source) {
            let what = format!("`{other}` and `{}` both go to `{}`", copy.source, path.display());
            return Err(Failure::usage(sandbar::Error::invalid("parse --out", what)));
        }
    }
    Ok(())
}

/// The folder that takes the copy, and the copy's path in it.
fn place(copy: &CopyOut) -> (&Path, PathBuf) {
    let into = copy.placement == Placement::Into || (copy.existing == Existing::Keep && copy.target.is_dir());
    match copy.target.parent() {
        Some(parent) if !into => (parent, copy.target.clone()),
        _ => {
            let name = copy.source.file_name().unwrap_or_default();
            (&copy.target, copy.target.join(std::ffi::OsStr::from_bytes(name)))
        }
    }
}
