use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The watched folders as a tree, so that one that gets another name takes all below it along.
///
/// It shows the names as of the kernel's event that was last looked at, which may lag behind those of now.
pub(super) struct Folders {
    root: i32,
    /// By the kernel's number: in which folder, under which name.
    places: HashMap<i32, (i32, OsString)>,
    numbers: HashMap<(i32, OsString), i32>,
}

impl Folders {
    pub(super) fn new(root: i32) -> Self {
        Self { root, places: HashMap::new(), numbers: HashMap::new() }
    }

    pub(super) fn knows(&self, watch: i32) -> bool {
        watch == self.root || self.places.contains_key(&watch)
    }

    /// The folder of this name.
    pub(super) fn at(&self, parent: i32, name: &OsStr) -> Option<i32> {
        self.numbers.get(&(parent, name.to_owned())).copied()
    }

    /// Relative to the root; `None` where a folder above is not known.
    pub(super) fn path(&self, watch: i32) -> Option<PathBuf> {
        let mut names = Vec::new();
        let mut at = watch;
        while at != self.root {
            let (parent, name) = self.places.get(&at)?;
            names.push(name);
            at = *parent;
        }
        Some(names.into_iter().rev().collect())
    }

    /// Gives a folder its place, and takes it from where it was. False where that would put it below itself.
    pub(super) fn place(&mut self, watch: i32, parent: i32, name: &OsStr) -> bool {
        if self.is_within(parent, watch) {
            return false;
        }
        self.vacate(watch);
        self.places.insert(watch, (parent, name.to_owned()));
        self.numbers.insert((parent, name.to_owned()), watch);
        true
    }

    pub(super) fn remove(&mut self, watch: i32) {
        self.vacate(watch);
    }

    /// The folder and all below it.
    pub(super) fn below(&self, top: i32) -> Vec<i32> {
        self.places.keys().copied().filter(|watch| self.is_within(*watch, top)).collect()
    }

    /// All but the root.
    pub(super) fn all(&self) -> impl Iterator<Item = i32> {
        self.places.keys().copied()
    }

    /// It ends, as nothing is ever placed below itself.
    fn is_within(&self, watch: i32, top: i32) -> bool {
        let mut at = watch;
        loop {
            if at == top {
                return true;
            }
            match self.places.get(&at) {
                Some((parent, _)) => at = *parent,
                None => return false,
            }
        }
    }

    fn vacate(&mut self, watch: i32) {
        let Some(place) = self.places.remove(&watch) else { return };
        // Another folder may have the name by now.
        if self.numbers.get(&place) == Some(&watch) {
            self.numbers.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_folder_takes_along_what_is_below_and_none_is_below_itself() {
        let mut folders = Folders::new(1);
        let [a, b, z] = ["a", "b", "z"].map(OsStr::new);
        assert!(folders.place(2, 1, a) && folders.place(3, 2, b));
        assert_eq!(folders.path(3).unwrap(), Path::new("a/b"));
        assert!(folders.place(2, 1, z));
        assert_eq!((folders.path(3).unwrap().as_path(), folders.at(1, a)), (Path::new("z/b"), None));
        assert!(!folders.place(2, 3, a) && !folders.place(1, 2, a));
        assert_eq!(folders.path(2).unwrap(), Path::new("z"));
        // Where another takes the name, the first is no longer found by it.
        assert!(folders.place(4, 1, z));
        folders.remove(2);
        assert_eq!((folders.at(1, z), folders.path(3)), (Some(4), None));
        assert_eq!(folders.path(1).unwrap(), Path::new(""));
    }
}
