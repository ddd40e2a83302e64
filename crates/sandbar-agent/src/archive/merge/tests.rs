use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::*;

struct Sides(tempfile::TempDir);

impl Sides {
    fn new(make: impl FnOnce(&Path, &Path)) -> Self {
        let place = tempfile::tempdir().unwrap();
        for name in ["new", "old", "into"] {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        make(&place.path().join("new"), &place.path().join("into"));
        Self(place)
    }

    fn merge(&self) -> Result<(), HttpError> {
        let open = |name: &str| fs::File::open(self.0.path().join(name)).unwrap();
        merge(open("new").as_fd(), open("old").as_fd(), open("into").as_fd())
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join(name)).unwrap()
    }
}

#[test]
fn folders_are_merged_and_files_replaced() {
    let sides = Sides::new(|new, into| {
        fs::create_dir_all(new.join("both/deep")).unwrap();
        fs::create_dir(new.join("closed")).unwrap();
        fs::write(new.join("closed/file"), "new").unwrap();
        fs::set_permissions(new.join("closed"), fs::Permissions::from_mode(0o500)).unwrap();
        fs::write(new.join("both/deep/file"), "new").unwrap();
        fs::write(new.join("both/added"), "new").unwrap();
        symlink("file", new.join("link")).unwrap();
        fs::create_dir_all(into.join("both/deep")).unwrap();
        fs::write(into.join("both/deep/file"), "before").unwrap();
        fs::write(into.join("both/kept"), "before").unwrap();
        symlink("/elsewhere", into.join("link")).unwrap();
    });
    sides.merge().unwrap();
    assert_eq!(sides.read("into/both/deep/file"), "new");
    assert_eq!(sides.read("into/both/added"), "new");
    assert_eq!(sides.read("into/both/kept"), "before");
    assert_eq!(fs::read_link(sides.0.path().join("into/link")).unwrap(), Path::new("file"));
    let closed = sides.0.path().join("into/closed");
    assert_eq!(fs::metadata(&closed).unwrap().permissions().mode() & 0o7777, 0o500);
    fs::set_permissions(closed, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn what_is_a_folder_on_one_side_only_is_refused_before_anything_moves() {
    for link in [false, true] {
        let sides = Sides::new(|new, into| {
            fs::write(new.join("a"), "new").unwrap();
            fs::create_dir(new.join("z")).unwrap();
            if link {
                fs::create_dir(into.join("aside")).unwrap();
                symlink("aside", into.join("z")).unwrap();
            } else {
                fs::write(into.join("z"), "before").unwrap();
            }
        });
        assert_eq!(sides.merge().unwrap_err().code, 400);
        assert!(!sides.0.path().join("into/a").exists());
    }
}

#[test]
fn what_was_moved_is_moved_back_when_something_fails() {
    let sides = Sides::new(|new, into| {
        for name in ["a", "b", "c"] {
            fs::write(new.join(name), "new").unwrap();
        }
        fs::write(into.join("a"), "before").unwrap();
    });
    let open = |name: &str| fs::File::open(sides.0.path().join(name)).unwrap();
    let (new, old, into) = (open("new"), open("old"), open("into"));
    let roots = Roots { new: new.as_fd(), old: old.as_fd(), into: into.as_fd() };
    let steps = [("a", true), ("b", false)].map(|(path, replaces)| Step {
        path: path.as_bytes().into(),
        replaces,
        closed: None,
    });
    for (number, step) in steps.iter().enumerate() {
        roots.make(step, number).unwrap();
    }
    assert_eq!((sides.read("into/a").as_str(), sides.read("into/b").as_str()), ("new", "new"));
    for (number, step) in steps.iter().enumerate().rev() {
        roots.undo(step, number).unwrap();
    }
    assert_eq!((sides.read("into/a").as_str(), sides.read("new/a").as_str()), ("before", "new"));
    assert!(!sides.0.path().join("into/b").exists());
}
