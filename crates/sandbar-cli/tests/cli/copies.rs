use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::harness::{Home, both, code};

/// A tree with names, links and modes that are easily lost.
fn odd_tree(top: &Path) {
    fs::create_dir_all(top.join("a/ empty")).unwrap();
    let names: [&[u8]; 7] = [b"-rf", b" x ", b"new\nline", b"\xff\xfe", b"*", b"back\\slash", &[b'n'; 255]];
    for name in names {
        fs::write(top.join("a").join(OsString::from_vec(name.to_vec())), name).unwrap();
    }
    let deep = (0..30).fold(top.to_owned(), |path, _| path.join("d".repeat(20)));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("file"), "deep").unwrap();
    fs::write(top.join("tool"), vec![b'#'; 300_000]).unwrap();
    fs::set_permissions(top.join("tool"), PermissionsExt::from_mode(0o755)).unwrap();
    fs::hard_link(top.join("tool"), top.join("same")).unwrap();
    symlink("tool", top.join("link")).unwrap();
    symlink("/etc/passwd", top.join("away")).unwrap();
    symlink("nowhere", top.join("dangling")).unwrap();
}

/// Every path below `top` with what it is: kind, rights to execute, content or link target.
fn listing(top: &Path) -> Vec<(Vec<u8>, String)> {
    let (mut found, mut folders) = (Vec::new(), vec![top.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            let meta = path.symlink_metadata().unwrap();
            let what = if meta.is_dir() {
                folders.push(path.clone());
                "folder".to_owned()
            } else if meta.is_symlink() {
                format!("link to {}", fs::read_link(&path).unwrap().display())
            } else {
                format!("{:o} {} {:?}", meta.mode() & 0o111, meta.mtime(), fs::read(&path).unwrap())
            };
            found.push((path.strip_prefix(top).unwrap().as_os_str().as_bytes().to_vec(), what));
        }
    }
    found.sort();
    found
}

#[test]
fn a_tree_goes_in_and_comes_out_as_it_was() {
    let home = Home::new();
    let tree = home.current().join("tree");
    odd_tree(&tree);
    let output =
        home.run(&["run", "--copy", "tree:/home/user/in", "--out", "/home/user/in:back", "--", "true"]);
    assert_eq!(code(&output), 0, "{}", both(&output));
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{}", both(&output));
    let back = home.current().join("back");
    assert_eq!(listing(&back), listing(&tree));
    let inode = |name| fs::metadata(back.join(name)).unwrap().ino();
    assert_eq!(inode("tool"), inode("same"));
    assert_eq!(fs::read_dir(home.current()).unwrap().count(), 2);
}

#[test]
fn a_copy_in_belongs_to_the_user_and_lies_where_cp_would_put_it() {
    let home = Home::new();
    fs::write(home.current().join("file"), "content").unwrap();
    fs::create_dir(home.current().join("folder")).unwrap();
    fs::write(home.current().join("folder/inner"), "inner").unwrap();
    let script = "cat /home/user/file /opt/deep/er/as folder/inner /srv/into/file; echo; stat -c %U /opt/deep/er/as file; ls -A . /opt/deep/er";
    let output = home.run(&[
        "run",
        "--copy",
        "file:/home/user",
        "--copy",
        "file:/opt/deep/er/as",
        "--copy",
        "./folder/:/home/user",
        "--copy",
        "file:/srv/into/",
        "--",
        "sh",
        "-c",
        script,
    ]);
    assert_eq!(code(&output), 0, "{}", both(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("contentcontentinnercontent\nuser\nuser\n"), "{}", both(&output));
    assert!(!text.contains(".sandbar"), "{text}");
}

#[test]
fn results_come_out_also_when_the_command_failed_or_timed_out() {
    let home = Home::new();
    fs::create_dir(home.current().join("results")).unwrap();
    let script = "echo partial > out; exit 9";
    let output = home.run(&["run", "--out", "/home/user/out:results", "--", "sh", "-c", script]);
    assert_eq!(code(&output), 9, "{}", both(&output));
    assert_eq!(fs::read(home.current().join("results/out")).unwrap(), b"partial\n");
    let script = "echo late > out; sleep 60";
    let output = home.run(&[
        "run",
        "--timeout",
        "500ms",
        "--out",
        "/home/user/out:results/late",
        "--",
        "sh",
        "-c",
        script,
    ]);
    assert_eq!(code(&output), 124, "{}", both(&output));
    assert_eq!(fs::read(home.current().join("results/late")).unwrap(), b"late\n");
}

#[test]
fn what_is_not_there_is_a_failure_that_leaves_nothing() {
    let home = Home::new();
    let output = home.run(&["run", "--out", "/home/user/none:out", "--", "true"]);
    assert_eq!(code(&output), 125, "{}", both(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("none"), "{}", both(&output));
    let output = home.run(&["run", "--out", "/no/such/folder:out", "--", "true"]);
    assert_eq!(code(&output), 125, "{}", both(&output));
    assert_eq!(fs::read_dir(home.current()).unwrap().count(), 0);
    home.assert_empty();
}

#[test]
fn a_special_file_is_refused_before_the_command_runs() {
    let home = Home::new();
    let tree = home.current().join("tree");
    fs::create_dir(&tree).unwrap();
    let _listener = UnixListener::bind(tree.join("sock")).unwrap();
    let output = home.run(&["run", "--copy", "tree:/home/user/in", "--", "echo", "ran"]);
    assert_eq!(code(&output), 125, "{}", both(&output));
    assert!(
        output.stdout.is_empty() && String::from_utf8_lossy(&output.stderr).contains("a socket"),
        "{}",
        both(&output)
    );
    home.assert_empty();
}
