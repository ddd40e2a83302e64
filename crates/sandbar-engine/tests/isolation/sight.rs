//! What is visible.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::harness::{Bench, Options};
use crate::modes::in_every_mode;

fn report(bench: &Bench) -> Value {
    bench.report(&json!({ "task": "report" }).to_string(), &Options::default())
}

fn text<'a>(report: &'a Value, key: &str) -> &'a str {
    report[key]["Ok"].as_str().unwrap_or_else(|| panic!("{key}: {}", report[key]))
}

#[test]
fn only_its_own_processes() {
    in_every_mode("sight::only_its_own_processes", |bench| {
        assert_eq!(report(bench)["processes"], json!(["1"]));
    });
}

#[test]
fn only_its_own_descriptors_arguments_and_environment() {
    in_every_mode("sight::only_its_own_descriptors_arguments_and_environment", |bench| {
        // Something that the caller's process has open without the mark to close it on exec.
        let leak = std::fs::File::open("/etc/passwd").unwrap();
        rustix::io::fcntl_setfd(&leak, rustix::io::FdFlags::empty()).unwrap();
        let report = report(bench);
        let fds: Vec<_> = report["fds"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(fds, ["0", "1", "2", "3", "4", "5"], "{}", report["fds"]);
        assert_eq!(report["fds"]["0"], "/dev/null");
        assert!(report["fds"]["3"].as_str().unwrap().starts_with("/memfd:"));
        for n in ["4", "5"] {
            assert!(report["fds"][n].as_str().unwrap().starts_with("socket:"));
        }
        assert_eq!(report["arguments"], json!(["sandbar-agent"]));
        assert_eq!(report["environment"], 0);
    });
}

#[test]
fn no_path_of_the_host_in_the_mount_table() {
    in_every_mode("sight::no_path_of_the_host_in_the_mount_table", |bench| {
        let report = report(bench);
        let table = text(&report, "mountinfo");
        let folder = bench.folder.path().to_str().unwrap();
        let probe = bench.probe.parent().unwrap().to_str().unwrap();
        for path in [
            folder,
            probe,
            "/old",
            "sandbar-engine",
            "upperdir=/tmp",
            "lowerdir=/usr",
            "/home",
            "/root",
            "/var",
        ] {
            assert!(!table.contains(path), "`{path}` in\n{table}");
        }
        for line in table.lines() {
            let fields: Vec<_> = line.split(' ').collect();
            assert!(fields[5].contains("nosuid"), "{line}");
            let device = fields[4].starts_with("/dev/") && fields[8] == "devtmpfs" || fields[4] == "/dev/pts";
            assert!(device || fields[5].contains("nodev"), "{line}");
            assert!(!line.contains("shared:") && !line.contains("master:"), "{line}");
        }
    });
}

#[test]
fn nothing_of_the_host_but_the_template() {
    in_every_mode("sight::nothing_of_the_host_but_the_template", |bench| {
        let mut planted = Vec::new();
        for folder in ["/root", "/home", "/var/lib", "/opt", "/tmp", "/srv", "/mnt"].map(std::path::Path::new)
        {
            let file = folder.join(format!("sandbar-secret-{}", std::process::id()));
            if std::fs::write(&file, "a planted secret").is_ok() {
                std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
                planted.push(file);
            }
        }
        let inside = bench.folder.path().join("secret");
        std::fs::write(&inside, "a planted secret").unwrap();
        let mut paths: Vec<_> = planted.iter().map(|path| path.to_str().unwrap()).collect();
        assert!(!paths.is_empty());
        paths.push(inside.to_str().unwrap());
        let host = [
            "/etc/shadow",
            "/etc/gshadow",
            "/etc/sudoers",
            "/etc/ssh",
            "/etc/ssl/private",
            "/old",
            "/l/0",
            "/m",
        ];
        paths.extend(host);
        let task = json!({ "task": "report", "read": paths }).to_string();
        let report = bench.report(&task, &Options::default());
        for path in &planted {
            std::fs::remove_file(path).unwrap();
        }
        for (path, answer) in report["read"].as_object().unwrap() {
            assert_eq!(*answer, json!(libc::ENOENT), "{path}");
        }
        let root: Vec<_> =
            report["root"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        for name in &root {
            let known = [
                "bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "media", "mnt", "opt",
                "proc", "root", "run", "sbin", "srv", "sys", "tmp", "usr", "var",
            ];
            assert!(known.contains(name), "`{name}` at the top");
        }
        assert_eq!(report["sys"], json!(["devices"]));
    });
}

#[test]
fn only_harmless_devices() {
    in_every_mode("sight::only_harmless_devices", |bench| {
        let report = report(bench);
        let known = json!([
            "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout",
            "tty", "urandom", "zero"
        ]);
        assert_eq!(report["dev"], known);
    });
}

#[test]
fn masks_read_as_empty() {
    in_every_mode("sight::masks_read_as_empty", |bench| {
        let files = [
            "kallsyms",
            "kcore",
            "keys",
            "key-users",
            "timer_list",
            "interrupts",
            "diskstats",
            "kmsg",
            "kpagecount",
            "cmdline",
            "iomem",
            "modules",
            "slabinfo",
            "sysrq-trigger",
            "sched_debug",
            "latency_stats",
        ];
        let paths: Vec<_> = files.iter().map(|name| format!("/proc/{name}")).collect();
        let writes = [
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/user/max_user_namespaces",
            "/proc/sysrq-trigger",
            "/sys",
            "/proc/sys/kernel/hostname",
        ];
        let task = json!({ "task": "report", "read": paths, "write": writes }).to_string();
        let report = bench.report(&task, &Options::default());
        for (path, answer) in report["read"].as_object().unwrap() {
            assert!(*answer == json!("") || *answer == json!(libc::ENOENT), "{path}: {answer}");
        }
        for (path, answer) in report["write"].as_object().unwrap() {
            let refused = [libc::EROFS, libc::EACCES, libc::ENOENT, libc::EPERM].map(i64::from);
            assert!(refused.contains(&answer.as_i64().unwrap()), "{path}: {answer}");
        }
        let own = text(&report, "boot_id");
        let host = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert_eq!(own.len(), host.len());
        assert_ne!(own, host);
    });
}

#[test]
fn a_network_with_nothing_but_loopback() {
    in_every_mode("sight::a_network_with_nothing_but_loopback", |bench| {
        let report = report(bench);
        let interfaces: Vec<_> = text(&report, "interfaces")
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(n, _)| n.trim())
            .collect();
        assert_eq!(interfaces, ["lo"]);
        assert_eq!(report["loopback"], true);
        assert!(report["outside"].as_str().unwrap().contains("unreachable"), "{}", report["outside"]);
    });
}

#[test]
fn names_of_its_own() {
    in_every_mode("sight::names_of_its_own", |bench| {
        let (one, other) = (report(bench), report(bench));
        assert_eq!(text(&one, "hostname"), "probe-box\n");
        assert_eq!(text(&one, "machine_id").len(), 33);
        assert_ne!(one["machine_id"], other["machine_id"]);
        for line in text(&one, "cgroup").lines() {
            assert!(line.ends_with(":/"), "{line}");
        }
    });
}
