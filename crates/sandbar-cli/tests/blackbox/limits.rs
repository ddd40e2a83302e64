//! What hurts stays inside: bombs of every kind, and what the record says of them.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Home, both, wait_until};

/// How long a watched limit may take to act; enforced ones act at once.
const WATCH_BOUND: Duration = Duration::from_secs(30);

fn state(record: &Value, limit: &str) -> String {
    record["limits"][limit]["state"]
        .as_str()
        .unwrap_or_else(|| panic!("no limit `{limit}` in {record}"))
        .to_owned()
}

/// The sandbox answers, and so does a new one.
fn still_well(home: &Home, id: &str) {
    wait_until("the sandbox answers", WATCH_BOUND, || {
        home.output(&["exec", id, "--", "true"]).status.success()
    });
    assert_eq!(home.text(&["run", "--", "echo", "well"]), "well");
}

#[test]
fn a_fork_bomb_stays_inside() {
    let home = Home::new();
    let id = home.create(&["--pids", "64"]);
    let output = home.output(&[
        "exec",
        &id,
        "--timeout",
        "3s",
        "--",
        "python3",
        "-c",
        r#"
import os, time
made = 0
while made < 2000:
    try:
        if os.fork() == 0:
            time.sleep(600)
        made += 1
    except OSError:
        print("refused at", made, flush=True)
        break
else:
    print("never refused", flush=True)
time.sleep(600)
"#,
    ]);
    let record = home.describe(&id);
    if state(&record, "pids") == "watched" {
        // Whoever watches ends the bomb, before its time or at it.
        assert!(matches!(output.status.code(), Some(124 | 137)), "{}", both(&output));
    } else {
        assert_eq!(output.status.code(), Some(124), "{}", both(&output));
    }
    if state(&record, "pids") == "enforced" {
        assert!(String::from_utf8_lossy(&output.stdout).starts_with("refused at"), "{}", both(&output));
        let hits = &record["limits"]["pids"]["hits"];
        assert!(hits.is_null() || hits.as_u64() > Some(0), "counted, where it can be: {record}");
    }
    still_well(&home, &id);
}

#[test]
fn a_memory_bomb_is_ended_and_named() {
    let home = Home::new();
    let id = home.create(&["--memory", "96M"]);
    let output = home.output(&[
        "exec",
        &id,
        "--timeout",
        "60s",
        "--",
        "python3",
        "-c",
        r#"
import time
held = []
for _ in range(64):
    held.append(bytearray(16 << 20))
    for i in range(0, 16 << 20, 4096): held[-1][i] = 1
    time.sleep(0.05)
print("held", len(held) * 16, "MiB")
time.sleep(30)
"#,
    ]);
    let record = home.describe(&id);
    if state(&record, "memory") == "none" {
        return still_well(&home, &id);
    }
    assert_eq!(output.status.code(), Some(137), "{}", both(&output));
    wait_until("the record names the cause", WATCH_BOUND, || {
        home.describe(&id)["last_kill"]["cause"] == "oom"
    });
    assert!(home.describe(&id)["limits"]["memory"]["hits"].as_u64() > Some(0));
    still_well(&home, &id);
}

#[test]
fn descriptors_run_out_inside_only() {
    let home = Home::new();
    let id = home.create(&[]);
    let text = home.text(&[
        "exec",
        &id,
        "--",
        "python3",
        "-c",
        r#"
import os
held = []
try:
    while True: held.append(os.open("/dev/null", os.O_RDONLY))
except OSError as e:
    print(e.errno)
"#,
    ]);
    assert_eq!(text, "24", "EMFILE");
    still_well(&home, &id);
}

#[test]
fn inotify_runs_out_inside_only() {
    let home = Home::new();
    let (one, two) = (home.create(&[]), home.create(&[]));
    let exhaust = r#"
import ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
held = 0
while libc.inotify_init1(0) >= 0:
    held += 1
    if held > 100000: break
print(held, ctypes.get_errno(), flush=True)
open("/tmp/exhausted", "w").write("x")
time.sleep(600)
"#;
    let mut holder = home
        .sandbar(&["exec", &one, "--", "python3", "-c", exhaust])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("exec");
    wait_until("the first sandbox has no more", Duration::from_secs(30), || {
        home.output(&["exec", &one, "--", "test", "-e", "/tmp/exhausted"]).status.success()
    });
    let again = home.text(&[
        "exec",
        &two,
        "--",
        "python3",
        "-c",
        "import ctypes; print(ctypes.CDLL(None).inotify_init1(0) >= 0)",
    ]);
    assert_eq!(again, "True", "the second still has some");
    holder.kill().expect("kill");
    holder.wait().expect("wait");
}

#[test]
fn a_disk_filler_is_ended_and_named() {
    let home = Home::new();
    let id = home.create(&["--disk", "64M"]);
    let output = home.output(&[
        "exec",
        &id,
        "--timeout",
        "60s",
        "--",
        "python3",
        "-c",
        r#"
import os, time
written = 0
for n in range(40):
    with open(f"/home/user/f{n}", "wb") as f:
        f.write(os.urandom(1 << 20) * 8)
        os.fsync(f.fileno())
    written += 8
    time.sleep(0.1)
print("wrote", written)
time.sleep(40)
"#,
    ]);
    let record = home.describe(&id);
    if state(&record, "disk") == "none" {
        return still_well(&home, &id);
    }
    assert!(!output.status.success(), "{}", both(&output));
    wait_until("the record names the cause", WATCH_BOUND, || {
        home.describe(&id)["last_kill"]["cause"] == "disk"
    });
    assert_eq!(home.text(&["run", "--", "echo", "well"]), "well");
}

#[test]
fn one_file_cannot_outgrow_the_disk_limit() {
    let home = Home::new();
    let text = home.text(&[
        "run",
        "--disk",
        "32M",
        "--",
        "python3",
        "-c",
        r#"
import os, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    with open("/home/user/big", "wb") as f: f.truncate(1 << 30)
    print("grew")
except OSError as e:
    print(e.errno)
"#,
    ]);
    assert_eq!(text, "27", "EFBIG");
}

#[test]
fn many_entries_are_destroyed_too() {
    let count = if std::env::var_os("SANDBAR_SOAK").is_some() { 1_000_000 } else { 20_000 };
    let home = Home::new();
    let id = home.create(&[]);
    let program = format!(
        "import os\nos.mkdir('/home/user/many')\nos.chdir('/home/user/many')\nfor n in range({count}): os.close(os.open(str(n), os.O_CREAT | os.O_WRONLY))\nprint(len(os.listdir('.')))"
    );
    assert_eq!(home.text(&["exec", &id, "--", "python3", "-c", &program]), count.to_string());
    home.text(&["destroy", &id]);
    assert!(!home.path().join("sandboxes").join(&id).exists());
}

#[test]
fn a_timeout_ends_the_tree_in_time() {
    let home = Home::new();
    let start = Instant::now();
    let output =
        home.output(&["run", "--timeout", "1s", "--", "sh", "-c", "sleep 60 & setsid sleep 60 & sleep 60"]);
    assert_eq!(output.status.code(), Some(124), "{}", both(&output));
    assert!(start.elapsed() >= Duration::from_secs(1), "not before its time");
    assert_eq!(home.text(&["ls", "--json"]), "[]");
}

#[test]
fn a_demand_for_enforced_limits_is_met_or_refused() {
    let home = Home::new();
    let output = home.output(&["create", "--require-enforced-limits", "--memory", "128M", "--pids", "64"]);
    if output.status.success() {
        let record = home.describe(String::from_utf8_lossy(&output.stdout).trim());
        assert_eq!(
            (state(&record, "memory").as_str(), state(&record, "pids").as_str()),
            ("enforced", "enforced")
        );
    } else {
        assert_eq!(output.status.code(), Some(125), "{}", both(&output));
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("memory"),
            "the limit is named: {}",
            both(&output)
        );
        assert_eq!(home.text(&["ls", "--json"]), "[]", "nothing was made");
    }
    let disk = home.output(&["create", "--require-enforced-limits", "--disk", "64M"]);
    assert!(!disk.status.success(), "disk is watched at best: {}", both(&disk));
}
