use std::fs;

use super::*;

fn names(folder: &Path) -> Vec<OsString> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

#[test]
fn what_is_new_comes_at_once_and_what_is_given_up_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a/b");
    let make = || {
        let stage = Stage::make(&path, OsStr::new(".sandbar-import-x")).unwrap();
        let folder = stage.folder().unwrap();
        mkdirat(&folder, "inner", Mode::RWXU).unwrap();
        stage
    };
    drop(make());
    assert!(names(place.path()).is_empty());
    make().commit().unwrap();
    assert_eq!(names(place.path()), ["a"]);
    assert_eq!(names(&path), ["inner"]);
    // And into what there is by now.
    let stage = make();
    assert_eq!(names(&path).len(), 2);
    stage.commit().unwrap();
    assert_eq!(names(&path), ["inner"]);
}

#[test]
fn what_a_killed_import_left_is_cleaned() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a");
    let name = OsStr::new(".sandbar-import-x");
    clean(&path, name).unwrap();
    fs::create_dir_all(place.path().join(name).join("new/a")).unwrap();
    clean(&path, name).unwrap();
    assert!(names(place.path()).is_empty());
}

#[test]
fn a_file_is_no_destination() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("file"), "x").unwrap();
    for path in ["file", "file/below"] {
        assert_eq!(Stage::make(&place.path().join(path), OsStr::new("x")).unwrap_err().code, 400);
    }
    assert_eq!(names(place.path()), ["file"]);
}

#[test]
fn a_link_that_leads_nowhere_is_said() {
    let place = tempfile::tempdir().unwrap();
    let link = place.path().join("link");
    std::os::unix::fs::symlink("nowhere/at/all", &link).unwrap();
    for path in [link.clone(), link.join("below")] {
        let error = Stage::make(&path, OsStr::new(".sandbar-import-x")).unwrap_err();
        assert_eq!(error.code, 400, "{error:?}");
        assert!(error.to_string().contains("a symbolic link that leads nowhere"), "{error:?}");
    }
}
