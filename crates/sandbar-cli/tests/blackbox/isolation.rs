//! Items 4 to 11 of the threat model, as each user inside.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use serde_json::Value;

use crate::harness::{Home, Ids, Who, both, ids, marker, wait_until};

const ESCAPE: &str = include_str!("inside/escape.py");

/// Errors that a refused call may answer: the threat model's item 8.
const REFUSED: &[&str] = &["EPERM", "ENOSYS"];

fn for_everybody(check: impl Fn(Who, &Value)) {
    let home = Home::new();
    for who in Who::all() {
        check(*who, &home.python(*who, ESCAPE, &[]));
    }
}

#[test]
fn forbidden_system_calls_answer_and_kill_nobody() {
    for_everybody(|who, seen| {
        for (name, outcome) in seen["syscalls"].as_object().expect("a table") {
            let outcome = outcome.as_str().unwrap_or_default();
            assert!(REFUSED.contains(&outcome), "{who:?}: `{name}` answered {outcome}");
        }
        assert_eq!(seen["syscalls"]["clone3"], "ENOSYS", "{who:?}: programs have to fall back");
        assert_eq!(seen["syscalls"]["unknown"], "ENOSYS", "{who:?}");
    });
}

#[test]
fn forbidden_sockets_are_refused() {
    for_everybody(|who, seen| {
        for (name, outcome) in seen["sockets"].as_object().expect("a table") {
            let outcome = outcome.as_str().unwrap_or_default();
            assert!(
                ["EPERM", "EACCES", "EAFNOSUPPORT", "ESOCKTNOSUPPORT"].contains(&outcome),
                "{who:?}: a {name} socket answered {outcome}"
            );
        }
    });
}

#[test]
fn a_terminal_takes_no_injected_input() {
    for_everybody(|who, seen| {
        for (name, outcome) in seen["tty"].as_object().expect("a table") {
            assert_eq!(outcome, "EPERM", "{who:?}: {name}");
        }
    });
}

#[test]
fn proc_tells_nothing_of_the_host_and_takes_no_orders() {
    let host_boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("the host's boot id");
    for_everybody(|who, seen| {
        for (path, outcome) in seen["proc"].as_object().expect("a table") {
            assert_ne!(outcome, "content", "{who:?}: {path} can be read");
        }
        for (path, outcome) in seen["write"].as_object().expect("a table") {
            assert_ne!(outcome, "ok", "{who:?}: {path} can be written");
        }
        assert_ne!(seen["boot_id"].as_str().expect("a boot id"), host_boot_id.trim(), "{who:?}");
        assert_ne!(
            seen["hostname"].as_str(),
            fs::read_to_string("/proc/sys/kernel/hostname").ok().as_deref().map(str::trim)
        );
    });
}

#[test]
fn pid_1_can_be_neither_read_nor_traced() {
    for_everybody(|who, seen| {
        for (link, outcome) in seen["links"].as_object().expect("a table") {
            assert_ne!(outcome, "ok", "{who:?}: /proc/1/{link} can be followed");
        }
        for (what, outcome) in seen["agent"].as_object().expect("a table") {
            assert_eq!(outcome, "EPERM", "{who:?}: {what} of the agent");
        }
        assert_eq!(seen["ptrace_pid1"], "EPERM", "{who:?}");
        assert_ne!(seen["proc"]["/proc/1/mem"], "content", "{who:?}");
    });
}

#[test]
fn privileges_are_the_named_ones() {
    /// Change owners, pass file checks, kill, change ids, bind low ports, change root, write the audit log.
    const MOST_FOR_ROOT: u64 =
        0x1 | 0x2 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80 | 0x100 | 0x400 | 0x4_0000 | 0x2000_0000 | 0x8000_0000;
    for_everybody(|who, seen| {
        let set = |name: &str| {
            u64::from_str_radix(seen["status"][name].as_str().expect("a set"), 16).expect("a number")
        };
        if who == Who::User {
            for name in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
                assert_eq!(set(name), 0, "{who:?}: {name}");
            }
        }
        for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(set(name) & !MOST_FOR_ROOT, 0, "{who:?}: {name} is {:x}", set(name));
        }
        assert_eq!(seen["status"]["NoNewPrivs"], "1", "{who:?}");
        assert_eq!(seen["status"]["Seccomp"], "2", "{who:?}");
        let uid = if who == Who::User { "1000" } else { "0" };
        assert!(
            seen["status"]["Uid"].as_str().expect("ids").split('\t').all(|id| id == uid),
            "{who:?}: {}",
            seen["status"]["Uid"]
        );
    });
}

#[test]
fn there_are_no_stray_processes_descriptors_or_devices() {
    let allowed: BTreeSet<&str> = [
        "console", "core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin",
        "stdout", "tty", "urandom", "zero",
    ]
    .into();
    for_everybody(|who, seen| {
        // PID 1, the command's small parent, the command itself, and under `sudo` its client, with its parent.
        let processes = seen["pids"].as_array().expect("pids").len();
        assert!(processes <= 5, "{who:?}: {processes} processes: {}", seen["pids"]);
        assert_eq!(seen["fds"], serde_json::json!([0, 1, 2]), "{who:?}");
        for device in seen["devices"].as_array().expect("devices") {
            assert!(allowed.contains(device.as_str().unwrap_or_default()), "{who:?}: /dev/{device}");
        }
        assert_eq!(seen["mknod"], "EPERM", "{who:?}");
    });
}

#[test]
fn mounts_show_no_host_path_and_carry_their_flags() {
    let home = Home::new();
    for who in Who::all() {
        let seen = home.python(*who, ESCAPE, &[]);
        let info = seen["mountinfo"].as_str().expect("text");
        for secret in [home.path().to_str().expect("text"), env!("CARGO_MANIFEST_DIR"), "sandbar-home"] {
            assert!(!info.contains(secret), "{who:?}: mountinfo holds `{secret}`:\n{info}");
        }
        for (target, flags) in seen["mounts"].as_object().expect("a table") {
            let flags: Vec<_> = flags.as_array().expect("flags").iter().filter_map(Value::as_str).collect();
            assert!(flags.contains(&"nosuid"), "{who:?}: {target} is {flags:?}");
            if !target.starts_with("/dev") {
                assert!(flags.contains(&"nodev"), "{who:?}: {target} is {flags:?}");
            }
            if target.starts_with("/sys") || target.starts_with("/proc/sys") {
                assert!(flags.contains(&"ro"), "{who:?}: {target} is {flags:?}");
            }
        }
    }
}

#[test]
fn a_host_process_is_not_seen() {
    let word = marker();
    let mut process = std::process::Command::new("sh")
        .args(["-c", "read line", &word])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("sh");
    let home = Home::new();
    for who in Who::all() {
        let seen = home.python(
            *who,
            r#"
import glob, json
found = []
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        found.append(open(path, "rb").read().decode("utf-8", "replace"))
    except OSError:
        pass
print(json.dumps(found))
"#,
            &[],
        );
        assert!(!seen.to_string().contains(&word), "{who:?} sees {seen}");
        assert!(seen.to_string().contains("python3"), "{who:?} sees at least itself: {seen}");
    }
    process.kill().expect("kill");
    process.wait().expect("wait");
}

#[test]
fn planted_secrets_are_out_of_reach() {
    let word = marker();
    let home = Home::new();
    let other = home.create(&[]);
    home.text(&[
        "exec",
        &other,
        "--",
        "sh",
        "-c",
        &format!("echo {word} > /home/user/planted; echo {word} > /tmp/planted"),
    ]);
    let own_home = std::env::var("HOME").expect("HOME");
    let mut planted =
        vec![home.path().join("planted"), Path::new(&own_home).join(format!(".planted-{word}"))];
    if ids() == Ids::Range {
        planted.push(format!("/root/.other-{word}").into());
        planted.push(format!("/home/planted-{word}").into());
        planted.push(format!("/var/lib/planted-{word}").into());
        planted.push(format!("/etc/planted-{word}").into());
        planted.push(format!("/opt/planted-{word}").into());
        planted.push(format!("/srv/planted-{word}").into());
    }
    for path in &planted {
        fs::write(path, &word).expect("plant");
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).expect("mode");
    }
    for who in Who::all() {
        let seen = home.python(
            *who,
            r#"
import json, os, sys
word, paths = sys.argv[1], sys.argv[2:]
found = []
def look(path):
    try:
        with open(path, "rb") as f:
            if word.encode() in f.read(1 << 20):
                found.append(path)
    except OSError:
        pass
for path in paths:
    look(path)
    look("/proc/1/root" + path)
    look("/proc/self/root" + path)
skip = {"/proc", "/sys", "/usr", "/dev"}
for folder, folders, files in os.walk("/"):
    folders[:] = [f for f in folders if os.path.join(folder, f) not in skip]
    for name in files:
        if word in name:
            found.append(os.path.join(folder, name))
        elif os.path.isfile(os.path.join(folder, name)):
            look(os.path.join(folder, name))
print(json.dumps(found))
"#,
            &[
                &[word.as_str()],
                planted.iter().map(|p| p.to_str().expect("text")).collect::<Vec<_>>().as_slice(),
            ]
            .concat(),
        );
        assert_eq!(seen, serde_json::json!([]), "{who:?}");
    }
    for path in &planted {
        fs::remove_file(path).expect("remove");
    }
}

#[test]
fn nothing_is_written_outside() {
    let word = marker();
    let home = Home::new();
    for who in Who::all() {
        let script = format!(
            "for d in /usr/bin /usr/lib /usr/local /etc /tmp /var/tmp /home /root /opt /bin /dev/shm /run; do \
             echo x > $d/{word}; done; rm -rf /usr/share/doc; echo x >> /etc/passwd; :"
        );
        home.output(
            &[&["run"], who.options().as_slice(), &["--"], who.prefix().as_slice(), &["sh", "-c", &script]]
                .concat(),
        );
    }
    for folder in [
        "/usr/bin",
        "/usr/lib",
        "/usr/local",
        "/etc",
        "/tmp",
        "/var/tmp",
        "/home",
        "/root",
        "/opt",
        "/dev/shm",
        "/run",
    ] {
        assert!(!Path::new(folder).join(&word).exists(), "{folder} of the host was written");
    }
    assert!(Path::new("/usr/share").read_dir().expect("the host's /usr/share").next().is_some());
}

#[test]
fn a_setuid_file_gives_nothing() {
    let home = Home::new();
    for who in Who::all() {
        let seen = home.python(
            *who,
            r#"
import json, os, shutil, subprocess
shutil.copy("/usr/bin/id", "/tmp/id")
os.chmod("/tmp/id", 0o6755)
print(json.dumps({"uid": os.getuid(), "shown": int(subprocess.check_output(["/tmp/id", "-u"]))}))
"#,
            &[],
        );
        assert_eq!(seen["uid"], seen["shown"], "{who:?}");
    }
}

#[test]
fn sandboxes_have_nothing_in_common() {
    let home = Home::new();
    let (one, two) = (home.create(&[]), home.create(&[]));
    let word = marker();
    // A file, an abstract socket, a System V segment and a POSIX one in the first; each is looked for in the second.
    let place = format!(
        r#"
import ctypes, os, socket, time
open("/tmp/{word}", "w").write("x")
s = socket.socket(socket.AF_UNIX); s.bind("\0{word}"); s.listen()
libc = ctypes.CDLL(None)
assert libc.shmget(0x5a4d, 4096, 0o1666) >= 0
open("/dev/shm/{word}", "w").write("x")
open("/tmp/ready", "w").write("x")
time.sleep(600)
"#
    );
    let mut holder = home.sandbar(&["exec", &one, "--", "python3", "-c", &place]).spawn().expect("exec");
    wait_until("the first sandbox is set up", std::time::Duration::from_secs(20), || {
        home.output(&["exec", &one, "--", "test", "-e", "/tmp/ready"]).status.success()
    });
    let look = format!(
        r#"
import ctypes, json, os, socket
seen = []
for path in ("/tmp/{word}", "/dev/shm/{word}"):
    if os.path.exists(path): seen.append(path)
try:
    socket.socket(socket.AF_UNIX).connect("\0{word}"); seen.append("abstract socket")
except OSError: pass
if ctypes.CDLL(None).shmget(0x5a4d, 4096, 0o666) >= 0: seen.append("segment")
print(json.dumps(dict(seen=seen, map=open("/proc/self/uid_map").read().split())))
"#
    );
    let first: Value =
        serde_json::from_str(&home.text(&["exec", &one, "--", "python3", "-c", &look])).expect("JSON");
    let second: Value =
        serde_json::from_str(&home.text(&["exec", &two, "--", "python3", "-c", &look])).expect("JSON");
    assert_eq!(first["seen"].as_array().expect("a list").len(), 4, "the check sees what is there: {first}");
    assert_eq!(second["seen"], serde_json::json!([]));
    if ids() == Ids::Range {
        assert_ne!(first["map"], second["map"], "each sandbox has an id range of its own");
    }
    holder.kill().expect("kill");
    holder.wait().expect("wait");
}

#[test]
fn the_data_folder_is_closed_at_every_level() {
    let home = Home::new();
    let id = home.create(&[]);
    let mut open = Vec::new();
    for folder in ["", "sandboxes", "names", "ids", "templates", "trash", "pool"]
        .iter()
        .map(|f| home.path().join(f))
        .chain([home.path().join("sandboxes").join(&id)])
    {
        let Ok(meta) = fs::metadata(&folder) else { continue };
        if meta.mode() & 0o077 != 0 {
            open.push(folder);
        }
    }
    assert!(open.is_empty(), "others may enter {open:?}");
}

#[test]
fn root_is_refused_with_the_fix_where_there_is_one_id() {
    let home = Home::new();
    for arguments in [&["run", "-u", "root", "--", "id", "-u"][..], &["run", "--", "sudo", "-n", "id", "-u"]]
    {
        let output = home.output(arguments);
        if ids() == Ids::Single {
            assert!(!output.status.success(), "{}", both(&output));
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("subordinate") || said.contains("subuid"), "the fix is named: {said}");
        } else {
            assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n", "{}", both(&output));
        }
    }
}
