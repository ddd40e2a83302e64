use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::harness::{Home, both, code};

/// A folder with a file and a shell, with what that is linked to.
fn root(place: &Path) {
    let shell = fs::canonicalize("/bin/sh").unwrap();
    let linked = Command::new("ldd").arg(&shell).output().unwrap();
    let linked = String::from_utf8(linked.stdout).unwrap();
    let files = linked.split_whitespace().filter(|word| word.starts_with('/'));
    for (from, to) in files.map(|file| (file, file)).chain([(shell.to_str().unwrap(), "/bin/sh")]) {
        let to = place.join(to.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    }
    fs::create_dir_all(place.join("etc")).unwrap();
    fs::write(place.join("etc/motd"), "hello").unwrap();
}

#[test]
fn a_template_is_imported_used_exported_and_removed() {
    let home = Home::new();
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("root");
    root(&folder);
    let folder = folder.to_str().unwrap();
    assert_eq!(home.text(&["template", "import", "mine", folder, "--label", "a word"]), "mine");
    let read = ["run", "-t", "mine", "--", "sh", "-c", "read line </etc/motd; echo $line"];
    assert_eq!(home.text(&read), "hello");

    let shown = home.json(&["template", "show", "mine", "--json"]);
    assert_eq!(
        (&shown["id"], &shown["label"], &shown["in_use"], &shown["version"]),
        (&json!("mine"), &json!("a word"), &json!(false), &json!(1)),
        "{shown}"
    );
    assert!(shown["size_bytes"].is_u64() && shown["created_at"].is_string(), "{shown}");
    let listed = home.json(&["template", "ls", "--json"]);
    let ids: Vec<_> = listed["templates"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect();
    assert_eq!(ids, ["host", "mine"]);
    assert!(home.text(&["template", "ls"]).starts_with("ID "));

    // Out and in again, by a pipe.
    let exported = home.run(&["template", "export", "mine"]);
    assert_eq!(code(&exported), 0, "{}", both(&exported));
    let tar = scratch.path().join("root.tar");
    fs::write(&tar, &exported.stdout).unwrap();
    let mut import = home.sandbar(&["template", "import", "again", "-"]);
    let imported = import.stdin(Stdio::from(fs::File::open(&tar).unwrap())).output().unwrap();
    assert_eq!(code(&imported), 0, "{}", both(&imported));
    let read = ["run", "-t", "again", "--", "sh", "-c", "read line </etc/motd; echo $line"];
    assert_eq!(home.text(&read), "hello");

    let id = home.create(&["-t", "mine"]);
    let held = home.run(&["template", "rm", "mine", "again", "--json"]);
    assert_eq!(code(&held), 125, "{}", both(&held));
    let report: serde_json::Value = serde_json::from_slice(&held.stdout).unwrap();
    assert_eq!(report, json!({"version": 1, "removed": ["again"], "absent": [], "failed": ["mine"]}));
    home.text(&["destroy", &id]);
    home.text(&["template", "rm", "mine"]);
    for arguments in
        [&["template", "rm", "mine"][..], &["template", "show", "mine"], &["template", "export", "mine"]]
    {
        let gone = home.run(arguments);
        assert_eq!(code(&gone), 1, "{}", both(&gone));
    }
}

#[test]
fn what_is_wrong_about_a_template_is_said() {
    let home = Home::new();
    for (arguments, expected, part) in [
        (&["template", "import", "../x", "/tmp"][..], 2, "template id"),
        (&["template", "import", "x", "/nowhere/at/all"], 125, "/nowhere/at/all"),
        (&["template", "import", "host", "/nowhere"], 125, "built-in"),
        (&["template", "export", "host"], 125, "this machine's own programs"),
        (&["template", "rm", "host"], 125, "built-in"),
        (&["run", "-t", "none", "--", "true"], 125, "template `none`"),
        (&["--provider", "e2b", "template", "import", "x", "/tmp"], 2, "this machine"),
    ] {
        let output = home.run(arguments);
        assert_eq!(code(&output), expected, "{arguments:?}: {}", both(&output));
        assert!(both(&output).contains(part), "{arguments:?}: {}", both(&output));
    }
}
