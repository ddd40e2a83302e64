use std::path::{Path, PathBuf};

use super::ignore::Ignore;
use super::{PREPARE, io};
use crate::{Error, Result};

/// The folder that a build file copies from.
#[derive(Clone, Debug)]
pub struct BuildContext {
    /// Without links in it.
    root: PathBuf,
    ignore: Ignore,
}

impl BuildContext {
    /// Opens a folder, and reads the file of it that says what is left out ([`IGNORE_FILE`](super::IGNORE_FILE)), where it has one.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let shown = folder.display();
        let root = folder.canonicalize().map_err(|cause| io(&format!("context `{shown}`"), cause))?;
        if !root.is_dir() {
            return Err(Error::invalid(PREPARE, format!("context `{shown}` is not a folder")));
        }
        let ignore = Ignore::read(&root)?;
        Ok(Self { root, ignore })
    }

    /// Where a source is, without links in it. One that is not there, or not in the context, is refused.
    pub(super) fn find(&self, source: &str) -> Result<PathBuf> {
        let place = self.root.join(source);
        let shown = source.escape_debug();
        let found = place.canonicalize().map_err(|cause| io(&format!("source `{shown}`"), cause))?;
        if !found.starts_with(&self.root) {
            let why = format!("source `{shown}` leads out of the context");
            return Err(Error::invalid(PREPARE, why).with_hint("copy what it leads to into the context"));
        }
        if self.is_ignored(&found) {
            let why = format!("source `{shown}` is left out by `{}`", super::IGNORE_FILE);
            return Err(Error::invalid(PREPARE, why));
        }
        Ok(found)
    }

    /// Whether a link at `link` that says `target` leads out of the context.
    pub(super) fn leads_out(&self, link: &Path, target: &Path) -> bool {
        use std::path::Component;
        if target.is_absolute() {
            return true;
        }
        let Ok(below) = link.strip_prefix(&self.root) else { return true };
        let mut depth = below.components().count().saturating_sub(1);
        for component in target.components() {
            match component {
                Component::ParentDir if depth == 0 => return true,
                Component::ParentDir => depth -= 1,
                Component::Normal(_) => depth += 1,
                _ => {}
            }
        }
        false
    }

    /// Whether something in the context is left out, by itself or by a folder that it is in.
    pub(super) fn is_ignored(&self, place: &Path) -> bool {
        let Ok(below) = place.strip_prefix(&self.root) else { return false };
        let folders = below.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
        self.ignore.matches(below, place.is_dir())
            || folders.into_iter().any(|folder| self.ignore.matches(folder, true))
    }
}
