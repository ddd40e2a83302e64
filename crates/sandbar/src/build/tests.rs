use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::ignore::Ignore;
use super::{BuildContext, IGNORE_FILE, PreparedBuild};
use crate::{BuildFile, BuildStep, ErrorKind};

/// What is in the archive of the only step, and below what it goes.
fn packed(context: &Path, line: &str) -> (String, BTreeMap<String, String>) {
    let file = BuildFile::parse(line).unwrap();
    let prepared = PreparedBuild::new(&file, Some(&BuildContext::open(context).unwrap())).unwrap();
    let [BuildStep::CopyFile { tar, to }] = prepared.steps() else { panic!("{:?}", prepared.steps()) };
    let mut archive = tar::Archive::new(std::fs::File::open(tar).unwrap());
    let mut members = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        if let Some(target) = entry.link_name().unwrap() {
            text = format!("-> {}", target.display());
        }
        members.insert(name, text);
    }
    (to.to_string(), members)
}

fn refused(context: &Path, line: &str) -> (ErrorKind, String) {
    let file = BuildFile::parse(line).unwrap();
    let error = PreparedBuild::new(&file, Some(&BuildContext::open(context).unwrap())).unwrap_err();
    (error.kind(), error.message().to_owned())
}

fn context() -> tempfile::TempDir {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    std::fs::create_dir_all(root.join("src/deep")).unwrap();
    std::fs::create_dir_all(root.join("node_modules/x")).unwrap();
    for (name, text) in
        [("a.json", "a"), ("src/main", "m"), ("src/deep/x.log", "l"), ("node_modules/x/y", "y")]
    {
        std::fs::write(root.join(name), text).unwrap();
    }
    symlink("main", root.join("src/link")).unwrap();
    scratch
}

#[test]
fn files_and_folders_go_where_they_are_to() {
    let scratch = context();
    let root = scratch.path();
    let (to, members) = packed(root, "COPY a.json /app/b.json");
    assert_eq!((to.as_str(), members["b.json"].as_str(), members.len()), ("/app", "a", 1));
    let (to, members) = packed(root, "COPY a.json /app/");
    assert_eq!((to.as_str(), members["a.json"].as_str()), ("/app", "a"));
    let (to, members) = packed(root, "COPY src /app/src");
    assert_eq!(
        (to.as_str(), members["main"].as_str(), members["link"].as_str()),
        ("/app/src", "m", "-> main")
    );
    assert!(members.contains_key("deep/x.log"));
    let (_, members) = packed(root, "COPY a.json src /app");
    assert!(members.contains_key("a.json") && members.contains_key("main"));
}

#[test]
fn the_same_content_gives_the_same_archive() {
    let (one, two) = (context(), context());
    let times = std::fs::FileTimes::new().set_modified(std::time::SystemTime::UNIX_EPOCH);
    std::fs::File::options().write(true).open(two.path().join("a.json")).unwrap().set_times(times).unwrap();
    let bytes = |root: &Path| {
        let file = BuildFile::parse("COPY . /app").unwrap();
        let prepared = PreparedBuild::new(&file, Some(&BuildContext::open(root).unwrap())).unwrap();
        let [BuildStep::CopyFile { tar, .. }] = prepared.steps() else { panic!() };
        std::fs::read(tar).unwrap()
    };
    assert_eq!(bytes(one.path()), bytes(two.path()));
}

#[test]
fn what_is_ignored_is_left_out() {
    let scratch = context();
    let root = scratch.path();
    std::fs::write(root.join(IGNORE_FILE), "# not these\nnode_modules/\n*.log\n").unwrap();
    let (_, members) = packed(root, "COPY . /app");
    let names: Vec<_> = members.keys().map(|name| name.trim_end_matches('/')).collect();
    assert_eq!(names, [IGNORE_FILE, "a.json", "src", "src/deep", "src/link", "src/main"]);
    assert!(refused(root, "COPY node_modules /x").1.contains("left out"));
    assert!(refused(root, "COPY src/deep/x.log /x").1.contains("left out"));
    let leaves_out =
        |pattern: &str, path: &str| Ignore::parse(pattern).unwrap().matches(Path::new(path), false);
    for (pattern, path, fits) in [
        ("*.log", "a/b/c.log", true),
        ("/a.log", "a.log", true),
        ("/a.log", "b/a.log", false),
        ("a/**/c", "a/c", true),
        ("a/**/c", "a/x/y/c", true),
        ("a/*/c", "a/x/y/c", false),
        ("?.js", "ab.js", false),
        ("*a*b*c", "xxaxxbxxc", true),
        ("dir/", "dir", false),
    ] {
        assert_eq!(leaves_out(pattern, path), fits, "{pattern} {path}");
    }
    for bad in ["!x", "../x", "**", "/"] {
        assert!(Ignore::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn nothing_from_outside_of_the_context_comes_along() {
    let scratch = context();
    let root = scratch.path();
    symlink("/etc/passwd", root.join("absolute")).unwrap();
    symlink("/etc", root.join("etc")).unwrap();
    std::fs::create_dir(root.join("out")).unwrap();
    symlink("../../secret", root.join("out/climbs")).unwrap();
    for (line, word) in [
        ("COPY absolute /x", "leads out"),
        ("COPY etc/passwd /x", "leads out"),
        ("COPY out /x", "out of the context"),
        ("COPY . /x", "out of the context"),
        ("COPY none /x", "none"),
    ] {
        let (_, message) = refused(root, line);
        assert!(message.starts_with("line 1: ") && message.contains(word), "{line}: {message}");
    }
    assert_eq!(refused(root, "COPY none /x").0, ErrorKind::NotFound);
    let file = BuildFile::parse("COPY a /x").unwrap();
    assert!(PreparedBuild::new(&file, None).unwrap_err().message().contains("no context"));
}
