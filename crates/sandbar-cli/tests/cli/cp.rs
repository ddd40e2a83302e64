use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;

use crate::copies::{listing, odd_tree};
use crate::harness::{Home, both, code, signal, start, wait_until};

/// Checks that a copy is refused with this code and these words, and that nothing half-made is left on either side.
fn refused(home: &Home, arguments: &[&str], expected: i32, parts: &[&str]) {
    let output = home.run(&[&["cp"], arguments].concat());
    assert_eq!(code(&output), expected, "{arguments:?}: {}", both(&output));
    let told = String::from_utf8_lossy(&output.stderr);
    for part in parts {
        assert!(told.contains(part), "{arguments:?}: {told}");
    }
    assert!(!told.contains(".sandbar-"), "a name of ours: {told}");
    no_leftovers(home.current());
}

fn no_leftovers(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        assert!(!name.starts_with(".sandbar"), "{name} is left");
    }
}

fn no_leftovers_inside(home: &Home, id: &str) {
    let left = home.text(&["exec", id, "--", "find", "/home/user", "/tmp", "/opt", "-name", ".sandbar*"]);
    assert_eq!(left, "");
}

#[test]
fn a_tree_goes_in_through_another_sandbox_and_out_as_it_was() {
    let home = Home::new();
    let tree = home.current().join("tree");
    odd_tree(&tree);
    fs::set_permissions(tree.join("a"), PermissionsExt::from_mode(0o500)).unwrap();
    let (one, other) = (home.create(&["--name", "one"]), home.create(&["--name", "other"]));
    home.text(&["cp", "tree", "one:/home/user/in"]);
    home.text(&["cp", "one:/home/user/in", "other:/home/user/"]);
    home.text(&["cp", "other:/home/user/in", "other:/home/user/again"]);
    home.text(&["cp", "other:/home/user/again/", "back"]);
    let back = home.current().join("back");
    assert_eq!(listing(&back), listing(&tree));
    let inode = |name| fs::metadata(back.join(name)).unwrap().ino();
    assert_eq!(inode("tool"), inode("same"));
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&back.join("a")), 0o500);
    for top in [&tree, &back] {
        fs::set_permissions(top.join("a"), PermissionsExt::from_mode(0o700)).unwrap();
    }
    no_leftovers(home.current());
    no_leftovers_inside(&home, &one);
    no_leftovers_inside(&home, &other);
}

#[test]
fn one_file_keeps_modes_and_times_and_holes() {
    let home = Home::new();
    let id = home.create(&[]);
    let script = "umask 0; printf x > odd; truncate -s 5000000 odd; printf y >> odd; truncate -s 9000000 odd; chmod 640 odd; \
        touch -d '2001-02-03 04:05:06.789 UTC' odd; : > empty; cp odd \"$(printf 'not\\377text')\"";
    home.text(&["exec", &id, "--", "sh", "-c", script]);
    home.text(&["cp", &format!("{id}:/home/user/odd"), "."]);
    let meta = fs::metadata(home.current().join("odd")).unwrap();
    assert_eq!((meta.len(), meta.mode() & 0o777), (9_000_000, 0o640));
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (981_173_106, 789_000_000));
    assert!(meta.blocks() < 100, "{} blocks", meta.blocks());
    let content = fs::read(home.current().join("odd")).unwrap();
    assert_eq!((content[0], content[5_000_000], content[8_999_999]), (b'x', b'y', 0));
    home.text(&["cp", &format!("{id}:/home/user/empty"), "nothing"]);
    assert_eq!(fs::read(home.current().join("nothing")).unwrap(), b"");
    // In again, and over what is there.
    fs::set_permissions(home.current().join("odd"), PermissionsExt::from_mode(0o604)).unwrap();
    home.text(&["cp", "odd", &format!("{id}:/home/user/empty")]);
    assert_eq!(
        home.text(&["exec", &id, "--", "stat", "-c", "%a %s %Y %U", "empty"]),
        "604 9000000 981173106 user"
    );
    // What the kernel makes up says that it is empty, and is not.
    refused(&home, &[&format!("{id}:/proc/version"), "version"], 125, &["it says that it is empty"]);
    // A name that is no text.
    let mut command = home.sandbar(&["cp"]);
    let odd = OsString::from_vec([id.as_bytes(), b":/home/user/not\xfftext"].concat());
    let output = command.arg(odd).arg("text").output().unwrap();
    assert_eq!(code(&output), 0, "{}", both(&output));
    assert_eq!(fs::metadata(home.current().join("text")).unwrap().len(), 9_000_000);
    // Also below a folder, and empty.
    home.text(&["exec", &id, "--", "sh", "-c", "mkdir d; cd d; : > \"$(printf 'no\\377')\"; : > yes"]);
    home.text(&["cp", &format!("{id}:/home/user/d"), "d"]);
    assert_eq!(fs::read_dir(home.current().join("d")).unwrap().count(), 2);
}

#[test]
fn it_lies_where_cp_would_put_it_or_is_refused() {
    let home = Home::new();
    let id = home.create(&["--name", "demo"]);
    fs::write(home.current().join("file"), "content").unwrap();
    fs::create_dir_all(home.current().join("folder/inner")).unwrap();
    home.text(&["exec", "demo", "--", "mkdir", "/home/user/there"]);
    home.text(&["cp", "file", "demo:/home/user/there"]);
    home.text(&["cp", "file", "demo:/home/user/there/"]);
    home.text(&["cp", "folder/.", "demo:/home/user/there/"]);
    let listed = home.text(&["exec", "demo", "--", "find", "there", "-mindepth", "1"]);
    let mut listed: Vec<_> = listed.lines().collect();
    listed.sort_unstable();
    assert_eq!(listed, ["there/file", "there/folder", "there/folder/inner"]);
    for (arguments, code, part) in [
        (["file", "demo:/home/user/no/file"], 125, "`/home/user/no`: it does not exist"),
        (["file", "demo:/home/user/no/"], 125, "`/home/user/no`: it does not exist"),
        (["file", "demo:/home/user/there/file/"], 125, "it is not a folder"),
        (["folder", "demo:/home/user/there"], 125, "neither merged nor replaced"),
        (["folder", "demo:/home/user/there/file"], 125, "is no folder"),
        (["file", "demo:/proc/file"], 125, "can't be copied to `/proc/file`"),
        (["nothing", "demo:/home/user"], 2, "`nothing` can't be copied"),
        (["demo:/home/user/nothing", "x"], 125, "nothing"),
        (["demo:/home/user/nothing", "demo:/home/user/x"], 125, "`/home/user/nothing` does not exist"),
        (["demo:/home/user/there", "no/x"], 2, "make the folder first"),
        (["demo:/home/user/there/folder", "."], 2, "not merged"),
        (["demo:/", "x"], 2, "as a whole"),
        (["absent:/x", "y"], 1, "sandbox `absent`"),
        (["file", "file2"], 2, "both paths are of this machine"),
        (["-", "demo:/home/user/x"], 2, "tar"),
        (["file", "demo:there"], 2, "absolute"),
    ] {
        refused(&home, &arguments, code, &[part]);
    }
    no_leftovers_inside(&home, &id);
}

#[test]
fn what_is_there_is_replaced_only_if_asked() {
    let home = Home::new();
    let id = home.create(&["--name", "demo"]);
    for (folder, name) in [("first", "old"), ("second", "new")] {
        fs::create_dir(home.current().join(folder)).unwrap();
        fs::write(home.current().join(folder).join(name), name).unwrap();
    }
    home.text(&["cp", "first", "demo:/home/user/there"]);
    home.text(&["cp", "--replace", "second", "demo:/home/user/there"]);
    assert_eq!(home.text(&["exec", "demo", "--", "ls", "there"]), "new");
    home.text(&["cp", "--replace", "demo:/home/user/there", "first"]);
    assert_eq!(fs::read(home.current().join("first/new")).unwrap(), b"new");
    assert!(!home.current().join("first/old").exists());
    home.text(&["cp", "first", "demo:/home/user/other"]);
    home.text(&["cp", "--replace", "demo:/home/user/other", "demo:/home/user/there"]);
    assert_eq!(home.text(&["exec", "demo", "--", "ls", "/home/user"]), "other\nthere");
    no_leftovers_inside(&home, &id);
}

#[test]
fn a_link_in_the_way_is_replaced_and_not_followed() {
    let home = Home::new();
    home.create(&["--name", "demo"]);
    let outside = home.current().join("outside");
    fs::write(&outside, "mine").unwrap();
    symlink(&outside, home.current().join("link")).unwrap();
    home.text(&["exec", "demo", "--", "sh", "-c", "echo theirs > file; ln -s /etc/passwd away"]);
    home.text(&["cp", "demo:/home/user/file", "link"]);
    assert_eq!(fs::read(&outside).unwrap(), b"mine");
    assert_eq!(fs::read(home.current().join("link")).unwrap(), b"theirs\n");
    // A link of the sandbox comes as a link, wherever it leads.
    home.text(&["cp", "demo:/home/user/away", "away"]);
    assert_eq!(fs::read_link(home.current().join("away")).unwrap(), Path::new("/etc/passwd"));
    home.text(&["cp", "demo:/home/user/away", "demo:/home/user/far"]);
    assert_eq!(home.text(&["exec", "demo", "--", "readlink", "far"]), "/etc/passwd");
}

#[test]
fn an_interrupt_leaves_nothing_on_either_side() {
    let home = Home::new();
    let id = home.create(&[]);
    home.create(&["--name", "other"]);
    // More than any copy gets done before the signal comes.
    let script = "truncate -s 9G huge; mkdir tree; truncate -s 9G tree/huge";
    home.text(&["exec", &id, "--", "sh", "-c", script]);
    fs::create_dir(home.current().join("tree")).unwrap();
    fs::File::create(home.current().join("tree/huge")).unwrap().set_len(1 << 40).unwrap();
    let begun_here = || {
        fs::read_dir(home.current()).unwrap().flatten().any(|entry| {
            entry.file_name().to_string_lossy().starts_with(".sandbar")
                && fs::read_dir(entry.path()).is_ok_and(|mut inner| inner.next().is_some())
        })
    };
    let begun_inside = |id: &str| {
        !home.text(&["exec", id, "--", "find", "/home/user", "-path", "*/.sandbar*/copy"]).is_empty()
    };
    let guest = format!("{id}:/home/user/");
    let cases: [(&str, &str, &dyn Fn() -> bool); 4] = [
        (&format!("{guest}huge"), "out", &begun_here),
        (&format!("{guest}tree"), "out", &begun_here),
        ("tree", &format!("{guest}in"), &|| begun_inside(&id)),
        (&format!("{guest}tree"), "other:/home/user/in", &|| begun_inside("other")),
    ];
    for (from, to, begun) in cases {
        let mut command = home.sandbar_in_foreground(&["cp", from, to]);
        let child = start(command.stdout(Stdio::piped()));
        wait_until("the beginning of the copy", begun);
        signal(&child, "INT");
        let output = child.wait_with_output().unwrap();
        assert_eq!(code(&output), 130, "{from} {to}: {}", both(&output));
        no_leftovers(home.current());
        no_leftovers_inside(&home, &id);
        no_leftovers_inside(&home, "other");
        for sandbox in [&*id, "other"] {
            wait_until("the end of tar", || {
                let names = home.text(&["exec", sandbox, "--", "sh", "-c", "cat /proc/[0-9]*/comm || :"]);
                !names.lines().any(|name| name == "tar")
            });
        }
        assert!(!home.current().join("out").exists());
    }
}

#[test]
fn devices_pipes_and_sockets_are_refused_by_name() {
    let home = Home::new();
    let id = home.create(&["--name", "demo"]);
    home.text(&["exec", "demo", "--", "sh", "-c", "mkdir tree; mkfifo tree/pipe; echo > tree/a"]);
    refused(&home, &["demo:/home/user/tree", "tree"], 125, &["tree/pipe", "can't be copied"]);
    refused(&home, &["demo:/home/user/tree", "demo:/home/user/x"], 125, &["tree/pipe", "can't be copied"]);
    refused(&home, &["demo:/dev/null", "null"], 125, &["can't be copied"]);
    no_leftovers_inside(&home, &id);
}

#[test]
fn json_tells_what_was_copied() {
    let home = Home::new();
    home.create(&["--name", "demo"]);
    fs::create_dir(home.current().join("tree")).unwrap();
    fs::write(home.current().join("tree/a"), "12345").unwrap();
    fs::write(home.current().join("tree/b"), vec![b'x'; 100_000]).unwrap();
    for arguments in [
        ["cp", "--json", "tree", "demo:/home/user/"],
        ["cp", "--json", "demo:/home/user/tree", "back"],
        ["cp", "--json", "demo:/home/user/tree", "demo:/home/user/again"],
    ] {
        let form = home.json(&arguments);
        assert_eq!(
            (&form["version"], &form["files"], &form["bytes"]),
            (&1.into(), &3.into(), &100_005.into())
        );
        assert!(form["duration"].as_f64().unwrap() > 0.0);
    }
}
