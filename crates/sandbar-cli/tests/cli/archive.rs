//! `import` and `export`: archives of other programs go in, and come out for them.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::copies::{listing, odd_tree};
use crate::harness::{Home, both, code, signal, start, wait_until};

/// What the machine's own `tar` makes of a folder.
fn tar_of(folder: &Path, options: &[&str]) -> Vec<u8> {
    let output = Command::new("tar").arg("-C").arg(folder).args(options).args(["-c", "."]).output().unwrap();
    assert!(output.status.success(), "{}", both(&output));
    output.stdout
}

fn no_leftovers_inside(home: &Home, id: &str) {
    let left = home.text(&["exec", id, "--", "find", "/home/user", "/tmp", "-name", ".sandbar*"]);
    assert_eq!(left, "");
}

#[test]
fn what_tar_packs_is_imported_and_what_is_exported_tar_unpacks() {
    let home = Home::new();
    let tree = home.current().join("tree");
    odd_tree(&tree);
    fs::remove_file(tree.join("away")).unwrap();
    fs::set_permissions(tree.join("a"), PermissionsExt::from_mode(0o500)).unwrap();
    let (one, other) = (home.create(&["--name", "one"]), home.create(&["--name", "other"]));
    for (format, folder) in [("gnu", "g"), ("pax", "p")] {
        let archive = tar_of(&tree, &[&format!("--format={format}")]);
        let output = home.run_with(&["import", &format!("one:/home/user/{folder}/tree"), "--json"], archive);
        assert_eq!(code(&output), 0, "{}", both(&output));
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(told["entries"].as_u64() > Some(40) && told["bytes"].as_u64() > Some(300_000), "{told}");
        let inside = home.text(&["exec", &one, "--", "sh", "-c", &format!("ls {folder}/tree/a | wc -l")]);
        assert!(inside.parse::<u32>().unwrap() > 5, "{inside}");
    }
    // From one sandbox into another, and out of that one.
    let exported = home.run(&["export", "one:/home/user/g/tree"]);
    let output = home.run_with(&["import", "other:/home/user"], exported.stdout);
    assert_eq!((code(&output), output.stdout.len()), (0, 0), "{}", both(&output));
    let exported = home.run(&["export", "other:/home/user/tree"]);
    let back = home.current().join("back");
    fs::create_dir(&back).unwrap();
    let mut unpack =
        Command::new("tar").arg("-C").arg(&back).args(["-x", "-p"]).stdin(Stdio::piped()).spawn().unwrap();
    unpack.stdin.take().unwrap().write_all(&exported.stdout).unwrap();
    assert!(unpack.wait().unwrap().success());
    assert_eq!(listing(&back.join("tree")), listing(&tree));
    let inode = |name| fs::metadata(back.join("tree").join(name)).unwrap().ino();
    assert_eq!(inode("tool"), inode("same"));
    assert_eq!(fs::metadata(back.join("tree/a")).unwrap().mode() & 0o777, 0o500);
    for top in [&tree, &back.join("tree")] {
        fs::set_permissions(top.join("a"), PermissionsExt::from_mode(0o700)).unwrap();
    }
    no_leftovers_inside(&home, &one);
    no_leftovers_inside(&home, &other);
}

#[test]
fn gzip_and_zstd_are_taken_off() {
    let home = Home::new();
    let tree = home.current().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "content".repeat(10_000)).unwrap();
    let id = home.create(&[]);
    for option in ["--gzip", "--zstd"] {
        if option == "--zstd" && Command::new("zstd").arg("--version").output().is_err() {
            eprintln!("without zstd: this machine has no `zstd`");
            continue;
        }
        let archive = tar_of(&tree, &[option]);
        assert!(archive.len() < 10_000);
        let output =
            home.run_with(&["import", &format!("{id}:/home/user/{}", &option[2..])], archive.clone());
        assert_eq!(code(&output), 0, "{}", both(&output));
        let size = home.text(&["exec", &id, "--", "stat", "-c", "%s %U", &format!("{}/file", &option[2..])]);
        assert_eq!(size, "70000 user");
        let cut = archive[..archive.len() - 5].to_vec();
        let output = home.run_with(&["import", &format!("{id}:/home/user/cut")], cut);
        assert_eq!(code(&output), 125, "{}", both(&output));
        assert!(
            both(&output).contains("cut short") || both(&output).contains("end of file"),
            "{}",
            both(&output)
        );
    }
    assert_eq!(home.text(&["exec", &id, "--", "sh", "-c", "ls -d cut .sandbar* 2>/dev/null || true"]), "");
}

#[test]
fn what_is_interrupted_leaves_nothing() {
    let home = Home::new();
    let id = home.create(&[]);
    let tree = home.current().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), vec![7; 3_000_000]).unwrap();
    let archive = tar_of(&tree, &[]);
    let to = format!("{id}:/home/user/half");
    let mut child = start(home.sandbar_in_foreground(&["import", &to]).stdin(Stdio::piped()));
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&archive[..2_000_000]).unwrap();
    let find = ["exec", &*id, "--", "sh", "-c", "find /home/user -name '.sandbar-import-*' -prune | wc -l"];
    wait_until("it is being unpacked", || home.text(&find) == "1");
    signal(&child, "INT");
    assert_eq!(code(&child.wait_with_output().unwrap()), 130);
    drop(stdin);
    wait_until("nothing of it is left", || home.text(&find) == "0");
    assert_eq!(home.text(&["exec", &id, "--", "ls", "/home/user"]), "");
}

/// Much more than waits on the way when it fails, which the end of what came is lost with.
const MUCH: usize = 8_000_000;

#[test]
fn an_export_that_fails_on_its_way_says_why() {
    let home = Home::new();
    let id = home.create(&[]);
    let script = format!(
        "mkdir d && head -c {MUCH} /dev/zero | tr '\\0' x > d/a && echo x > d/locked && chmod 0 d/locked"
    );
    home.text(&["exec", &id, "--", "sh", "-c", &script]);
    let output = home.run(&["export", &format!("{id}:/home/user/d"), "--json"]);
    assert_eq!(code(&output), 125);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.stdout.len() > MUCH / 2 && !output.stdout.ends_with(&[0; 1024]),
        "{} bytes, {told}",
        output.stdout.len()
    );
    let error: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(error["error"]["kind"], "permission_denied", "{told}");
    assert!(told.contains("d/locked") || told.contains("`locked`"), "{told}");
    let output = home.run(&["export", &format!("{id}:/home/user/d/a")]);
    assert!(
        code(&output) == 0 && output.stdout.ends_with(&[0; 1024]),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A program that unpacks slowly, as it does on a slow disk, is waited for as long as the agent is there: with `SANDBAR_SOAK`, longer than it
/// is trusted without being asked.
#[test]
fn an_import_that_stands_still_for_long_is_not_lost() {
    let home = Home::new();
    let id = home.create(&[]);
    let tree = home.current().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), vec![7; 3_000_000]).unwrap();
    let archive = tar_of(&tree, &[]);
    let still = if std::env::var_os("SANDBAR_SOAK").is_some() { 70 } else { 1 };
    let to = format!("{id}:/home/user/slow");
    let mut child = start(home.sandbar(&["import", &to]).stdin(Stdio::piped()));
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&archive[..1_000_000]).unwrap();
    let tell = |signal: &str| {
        let script = format!(
            "n=0; for p in /proc/[0-9]*; do read -r c < $p/comm || continue; case $c in sandbar-archive) \
             kill -{signal} ${{p#/proc/}} && n=$((n + 1));; esac; done 2>/dev/null; echo $n"
        );
        home.text(&["exec", &id, "--", "sh", "-c", &script])
    };
    wait_until("it is at work, and stopped", || tell("STOP") == "1");
    let rest = std::thread::spawn(move || stdin.write_all(&archive[1_000_000..]));
    home.text(&["exec", &id, "--", "sleep", &still.to_string()]);
    assert_eq!(tell("CONT"), "1");
    rest.join().unwrap().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0, "{}", both(&output));
    assert_eq!(home.text(&["exec", &id, "--", "stat", "-c", "%s", "slow/file"]), "3000000");
}

#[test]
fn hostile_and_wrong_input_is_refused_by_name() {
    let home = Home::new();
    let id = home.create(&[]);
    let tree = home.current().join("tree");
    fs::create_dir(&tree).unwrap();
    std::os::unix::fs::symlink("/etc", tree.join("escape\u{1b}[2J")).unwrap();
    let to = format!("{id}:/home/user/new");
    let output = home.run_with(&["import", &to], tar_of(&tree, &[]));
    assert_eq!(code(&output), 125, "{}", both(&output));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("escape\\") && told.contains("outside") && !told.contains('\u{1b}'), "{told}");
    let output = home.run_with(&["import", &to], b"no archive at all".repeat(100));
    assert!(both(&output).contains("not a tar archive"), "{}", both(&output));
    for (arguments, expected, part) in [
        (vec!["import", "here"], 2, "ID:/PATH"),
        (vec!["export", "-"], 2, "ID:/PATH"),
        (vec!["export", "none:/a"], 1, "none"),
    ] {
        let output = home.run(&arguments);
        assert_eq!(code(&output), expected, "{}", both(&output));
        assert!(both(&output).contains(part), "{}", both(&output));
    }
    for (path, part) in [("/", "`/`"), ("/home/user/none", "does not exist")] {
        let output = home.run(&["export", &format!("{id}:{path}")]);
        assert_eq!((code(&output), output.stdout.len()), (125, 0), "{}", both(&output));
        assert!(both(&output).contains(part), "{}", both(&output));
    }
    let output = home.run_with(&["import", &format!("{id}:/")], tar_of(&tree, &[]));
    assert_eq!(code(&output), 125, "{}", both(&output));
    assert!(both(&output).contains("at `/`"), "{}", both(&output));
    assert_eq!(home.text(&["exec", &id, "--", "ls", "-A", "/home/user"]).matches("new").count(), 0);
}
