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

/// A transcript without what is another each time.
fn settled(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-:._".contains(c);
    let (mut settled, mut before, mut rest) = (String::new(), String::new(), text);
    while let Some(start) = rest.find(|c| is_part(c) && c != ':') {
        settled.push_str(&rest[..start]);
        rest = &rest[start..];
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let word = known(&before, &rest[..end]);
        settled.push_str(&word);
        (before, rest) = (word, &rest[end..]);
    }
    settled + rest
}

/// What stands for a word, after this one.
fn known(before: &str, word: &str) -> String {
    let is_number = word.starts_with(|c: char| c.is_ascii_digit());
    let is_id = word.len() == 20 && word.starts_with('s') && word.chars().all(|c| c.is_ascii_alphanumeric());
    let known = match before {
        _ if word.starts_with("sha256-") => "sha256-[digest]",
        _ if word.starts_with("local:sha256:") => "local:sha256:[digest]",
        _ if word.len() >= 20 && word.ends_with('Z') && is_number => "[time]",
        _ if is_id => "[sandbox]",
        "size" | "size_bytes" | "sha256-[digest]" if is_number => "[size]",
        "[time]" if is_number => "[ago]",
        "ids" => "[ids]",
        _ => word,
    };
    known.to_owned()
}

#[test]
fn a_build_a_commit_and_what_they_made_are_shown() {
    let home = Home::new();
    let context = home.current();
    fs::create_dir(context.join("app")).unwrap();
    fs::write(context.join("app/page"), "hello\n").unwrap();
    let file = "ENV MODE=fast\nWORKDIR /home/user/app\nCOPY page ./\nRUN cat page; echo told >&2\nSTART [\"sleep\", \"600\"]\nREADY test -e page\n";
    fs::write(context.join("app/Buildfile"), file).unwrap();
    insta::assert_snapshot!(
        "template_build",
        settled(&home.transcript(&["template", "build", "app", "app"]))
    );
    insta::assert_snapshot!(
        "template_build_again_json",
        settled(&home.transcript(&["template", "build", "app", "app", "--json"]))
    );
    insta::assert_snapshot!("template_show", settled(&home.transcript(&["template", "show", "app"])));
    insta::assert_snapshot!(
        "template_show_json",
        settled(&home.transcript(&["template", "show", "app", "--json"]))
    );
    let id = home.create(&["--name", "box", "-t", "app"]);
    let shown = home.json(&["template", "show", "app", "--json"]);
    assert_eq!((&shown["used_by"], &shown["in_use"]), (&json!([id]), &json!(true)), "{shown}");
    let commit = ["template", "commit", "box", "mine", "--label", "a word"];
    insta::assert_snapshot!("template_commit", settled(&home.transcript(&commit)));
    insta::assert_snapshot!("template_show_commit", settled(&home.transcript(&["template", "show", "mine"])));
    home.text(&["destroy", &id]);

    fs::write(context.join("app/Buildfile"), "RUN echo before; exit 7\n").unwrap();
    insta::assert_snapshot!("template_build_fails", home.transcript(&["template", "build", "bad", "app"]));
    fs::write(context.join("app/Buildfile"), "START echo up; exit 3\nREADY echo not yet; exit 1\n").unwrap();
    home.text(&["template", "build", "never", "app"]);
    insta::assert_snapshot!("template_never_ready", home.transcript(&["create", "-t", "never"]));
    home.text(&["template", "rm", "app", "mine", "never"]);
}

/// What was typed is what an error begins with.
#[test]
fn errors_are_told_in_the_words_that_were_typed() {
    let home = Home::new();
    let id = home.create(&["--name", "box"]);
    home.text(&["pause", "box"]);
    for (arguments, word) in
        [(&["exec", "box", "--", "true"][..], "exec"), (&["cp", "box:/etc/passwd", "here"], "cp")]
    {
        let output = home.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.starts_with(&format!("error: {word}: ")), "{said}");
        assert!(said.contains(&format!("`sandbar resume {id}`")), "{said}");
    }
    home.text(&["destroy", "box"]);
}
