use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::harness::{Home, both, code};

/// A tree with names, links and modes that are easily lost.
pub(crate) fn odd_tree(top: &Path) {
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
pub(crate) fn listing(top: &Path) -> Vec<(Vec<u8>, String)> {
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

#[test]
fn a_file_without_a_size_is_copied_whole_or_refused() {
    let home = Home::new();
    // In: what this side reads has its content.
    let output =
        home.run(&["run", "--copy", "/proc/self/status:/tmp/", "--", "head", "-c", "5", "/tmp/status"]);
    assert_eq!((code(&output), &output.stdout[..]), (0, &b"Name:"[..]), "{}", both(&output));
    let online = "/sys/devices/system/cpu/online";
    let output = home.run(&["run", "--copy", &format!("{online}:/tmp/"), "--", "cat", "/tmp/online"]);
    assert_eq!((code(&output), output.stdout), (0, fs::read(online).unwrap()));
    // Out: its own `tar` would leave it empty.
    for (source, named) in
        [("/proc/self/status", "/proc/self/status"), ("/proc/sys/fs/inotify", "/proc/sys/fs/inotify/max_")]
    {
        let output = home.run(&["run", "--out", &format!("{source}:out"), "--", "true"]);
        assert_eq!(code(&output), 125, "{}", both(&output));
        assert!(String::from_utf8_lossy(&output.stderr).contains(named), "{}", both(&output));
    }
    assert_eq!(fs::read_dir(home.current()).unwrap().count(), 0);
    // What is empty is copied as that, among many and alone.
    let script = "mkdir d; cd d; for n in $(seq 2500); do : > $n; done; : > -x; echo full > full";
    let output =
        home.run(&["run", "--out", "/home/user/d:d", "--out", "/home/user/d/-x:x", "--", "sh", "-c", script]);
    assert_eq!(code(&output), 0, "{}", both(&output));
    assert_eq!(fs::read_dir(home.current().join("d")).unwrap().count(), 2502);
    assert_eq!(fs::read(home.current().join("x")).unwrap(), b"");
}

#[test]
fn what_is_no_file_does_not_come_out() {
    let home = Home::new();
    for (source, script) in [("/home/user/x", "mkfifo x"), ("/dev/null", "true"), ("/dev/zero", "true")] {
        let output = home.run(&["run", "--out", &format!("{source}:out"), "--", "sh", "-c", script]);
        assert_eq!(code(&output), 125, "{}", both(&output));
        assert!(both(&output).contains("not a file, folder or link"), "{}", both(&output));
    }
    assert_eq!(fs::read_dir(home.current()).unwrap().count(), 0);
}

#[test]
fn a_folder_can_be_copied_out_again_if_that_was_asked_for() {
    let home = Home::new();
    let run = |replace: &[&str], target: &str, script: &str| {
        let out = format!("/home/user/dist:{target}");
        home.run(&[&["run", "--out", &out], replace, &["--", "sh", "-c", script]].concat())
    };
    for round in ["1", "2", "3"] {
        let output = run(&["--replace"], "./dist", &format!("mkdir dist; echo {round} > dist/{round}"));
        assert_eq!(code(&output), 0, "{}", both(&output));
        assert_eq!(listing(&home.current().join("dist")).len(), 1);
        assert!(home.current().join("dist").join(round).exists());
    }
    // Into a folder that is there, as without it.
    let output = run(&["--replace"], ".", "mkdir dist; echo 4 > dist/4");
    assert_eq!(code(&output), 0, "{}", both(&output));
    assert!(home.current().join("dist/4").exists() && !home.current().join("dist/3").exists());
    // Without it the command does not even run.
    let output = run(&[], ".", "echo ran");
    assert_eq!(code(&output), 2, "{}", both(&output));
    assert!(output.stdout.is_empty() && both(&output).contains("--replace"), "{}", both(&output));
    assert_eq!(fs::read_dir(home.current()).unwrap().count(), 1);
}

#[test]
fn a_place_that_takes_no_copy_is_told_in_the_words_that_were_typed() {
    let home = Home::new();
    fs::write(home.current().join("f"), "x").unwrap();
    fs::create_dir_all(home.current().join("d/f")).unwrap();
    let id = home.create(&[]);
    // With a single id everything inside is the one user's own, root's home too.
    let is_single = home.json(&["describe", &id, "--json"])["isolation"]["ids"] == "single";
    assert_eq!(code(&home.run(&["destroy", &id])), 0);
    let home_of_root = if is_single { "f:/sys/f" } else { "f:/root/f" };
    for (copy, destination) in [
        ("f:/proc/f", "/proc"),
        ("f:/proc/", "/proc"),
        ("d:/sys/d", "/sys"),
        ("f:/dev/null", "/dev/null"),
        ("d:/dev/null", "/dev/null"),
        ("d:/etc/passwd", "/etc/passwd"),
        ("f:/etc/passwd/f", "/etc/passwd"),
        (home_of_root, &home_of_root[2..home_of_root.len() - 2]),
        ("f:/ro/", "/ro"),
        ("f:/ro/new/f", "/ro/new"),
        ("d:/ro/d", "/ro"),
        ("f:/mnt", "/mnt/f"),
    ] {
        let output = home.run(&[
            "run",
            "--mount",
            "./d:/ro",
            "--mount",
            "./d:/mnt:ro",
            "--copy",
            copy,
            "--",
            "echo",
            "ran",
        ]);
        assert_eq!(code(&output), 125, "{copy}: {}", both(&output));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(destination) && !text.contains(".sandbar"), "{copy}: {text}");
        assert!(output.stdout.is_empty(), "{copy}: {}", both(&output));
    }
    assert_eq!(fs::read_dir(home.current().join("d")).unwrap().count(), 1);
    home.assert_empty();
}
