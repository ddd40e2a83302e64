use std::path::Path;
use std::process::Command;

use sandbar_rig::{Rig, inside};

use crate::inside::Inside;

/// What git exits with where it can't go on.
const FATAL: i32 = 128;

fn git(folder: &Path, arguments: &[&str]) {
    let identity =
        ["-c", "user.name=test", "-c", "user.email=test@example.test", "-c", "init.defaultBranch=main"];
    let mut command = Command::new("git");
    command.current_dir(folder).args(identity).args(arguments);
    let output = command.env("GIT_CONFIG_GLOBAL", "/dev/null").output().expect("git is here");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn clone_over_https() {
    inside("repository::clone_over_https", || {
        let rig = Rig::connect();
        let ((name, _), (denied, _)) = (rig.host("git"), rig.host("denied"));
        let site = tempfile::tempdir().expect("a folder");
        let (work, bare) = (site.path().join("work"), site.path().join("site/demo.git"));
        std::fs::create_dir_all(&work).expect("a folder");
        git(&work, &["init", "-q"]);
        std::fs::write(work.join("hello"), "hello from afar\n").expect("a file");
        git(&work, &["add", "hello"]);
        git(&work, &["commit", "-q", "-m", "one"]);
        git(&work, &["clone", "-q", "--bare", ".", bare.to_str().expect("text")]);
        git(&bare, &["update-server-info"]);
        rig.serve_folder(&name, &site.path().join("site"));
        let sandbox = Inside::allowed(rig, &[&name]);
        sandbox.works(&["git", "clone", "-q", &format!("https://{name}/demo.git"), "/tmp/demo"]);
        assert_eq!(sandbox.works(&["cat", "/tmp/demo/hello"]), "hello from afar\n");
        let line = ["git", "clone", "-q", &format!("https://{denied}/demo.git"), "/tmp/denied"];
        sandbox.fails(&line, FATAL, "Could not resolve host");
        sandbox.is_denied(&denied);
    });
}
