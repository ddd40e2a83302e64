use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use sandbar_engine::Host;

use crate::harness::{Bench, probe};

/// Says which mode a re-executed test is to have.
const MODE: &str = "SANDBAR_ENGINE_TEST_MODE";
/// A user that no machine has, with its line in the tables that the re-executed tests see.
const USER: u32 = 45_678;

/// Runs `test` in a process of its own, so that what it leaves can be counted, in each mode that this machine gives to
/// whoever runs the tests: as root a range, and an ordinary user with one id and with subordinate ids; else the one mode
/// of the user.
pub(crate) fn in_every_mode(name: &str, test: impl Fn(&Bench)) {
    if let Ok(wanted) = std::env::var(MODE) {
        let bench = Bench::new();
        let mode = bench.ids();
        assert_eq!(mode.name(), wanted, "the mode that the test was started for");
        println!("{name}: mode {wanted}");
        return test(&bench);
    }
    let host = Host::observe();
    if !host.needs_range() {
        return again(
            name,
            host.user_id_mode().name(),
            Command::new(std::env::current_exe().unwrap()).args(exactly(name)),
        );
    }
    again(name, "range", Command::new(std::env::current_exe().unwrap()).args(exactly(name)));
    as_ordinary_user(name, "single");
    if Path::new("/usr/bin/newuidmap").is_file() {
        as_ordinary_user(name, "subordinate");
    } else {
        println!("{name}: not tried with subordinate ids: newuidmap is not installed");
    }
}

fn exactly(name: &str) -> [&str; 3] {
    ["--exact", name, "--nocapture"]
}

fn again(name: &str, mode: &str, command: &mut Command) {
    let output = command.env(MODE, mode).output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} in mode {mode}:\n{said}");
    println!("{said}");
    assert!(said.contains(&format!("mode {mode}")), "the re-executed test ran nothing:\n{said}");
}

fn as_ordinary_user(name: &str, mode: &str) {
    let folder = tempfile::Builder::new().prefix("sandbar-engine-user-").tempdir().unwrap();
    let at = folder.path();
    std::fs::set_permissions(at, std::fs::Permissions::from_mode(0o755)).unwrap();
    for (from, to) in [(std::env::current_exe().unwrap(), "test"), (probe(), "probe")] {
        // A link where that is possible: both are big.
        std::fs::hard_link(&from, at.join(to))
            .or_else(|_| std::fs::copy(&from, at.join(to)).map(drop))
            .unwrap();
    }
    let work = at.join("work");
    std::fs::create_dir(&work).unwrap();
    std::os::unix::fs::chown(&work, Some(USER), Some(USER)).unwrap();

    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    std::fs::write(at.join("passwd"), format!("{passwd}sandbartest:x:{USER}:{USER}::/:/bin/sh\n")).unwrap();
    let ranges = if mode == "subordinate" { "sandbartest:600000000:65536\n" } else { "" };
    std::fs::write(at.join("ranges"), ranges).unwrap();
    // In mounts of its own the test sees these tables; the machine's stay as they are.
    let script = format!(
        "set -e
        touch /etc/subuid /etc/subgid
        mount --bind {at}/passwd /etc/passwd
        mount --bind {at}/ranges /etc/subuid
        mount --bind {at}/ranges /etc/subgid
        exec setpriv --reuid={USER} --regid={USER} --clear-groups --inh-caps=-all {at}/test --exact {name} --nocapture",
        at = at.display()
    );
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .env("TMPDIR", &work)
        .env("HOME", &work);
    again(name, mode, &mut command);
}
