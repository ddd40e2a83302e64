use std::fs;
use std::os::unix::fs::symlink;

use super::*;

#[test]
fn folder_by_folder_no_link_is_followed_either() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir_all(place.path().join("a/b")).unwrap();
    symlink("b", place.path().join("a/link")).unwrap();
    symlink("a", place.path().join("link")).unwrap();
    let top = fs::File::open(place.path()).unwrap();
    let rules = Rules::default();
    let there = Place::new(top.as_fd(), &rules);
    for (path, opens) in
        [("", true), ("a", true), ("a/b", true), ("a/link", false), ("link/b", false), ("link", false)]
    {
        let path = path.as_bytes();
        assert_eq!(there.open(path, OFlags::RDONLY).is_ok(), opens);
        let given = if path.is_empty() { b"." } else { path };
        assert_eq!(open_by_steps(top.as_fd(), given, FOLDER).is_ok(), opens, "{}", path.escape_ascii());
    }
}
