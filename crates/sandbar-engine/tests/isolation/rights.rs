//! What is allowed.

use std::os::unix::fs::MetadataExt as _;

use sandbar_engine::{Access, IdMode, SANDBOX_ROOT_CAPABILITIES, capability_mask};
use serde_json::{Value, json};

use crate::harness::{Bench, Options};
use crate::modes::in_every_mode;

fn report(bench: &Bench, options: &Options) -> Value {
    bench.report(&json!({ "task": "report" }).to_string(), options)
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} in {status}")).trim()
}

#[test]
fn ids_and_capabilities_are_those_of_the_mode() {
    in_every_mode("rights::ids_and_capabilities_are_those_of_the_mode", |bench| {
        let report = report(bench, &Options::default());
        let map = |key: &str| {
            let text = report[key]["Ok"].as_str().unwrap();
            text.lines()
                .map(|l| l.split_whitespace().map(|n| n.parse().unwrap()).collect())
                .collect::<Vec<Vec<u32>>>()
        };
        let (id, keep) = match bench.ids() {
            IdMode::Range { .. } => {
                assert_eq!(map("uid_map").len(), 1);
                assert_eq!((map("uid_map")[0][0], map("uid_map")[0][2]), (0, 65_536));
                assert!(map("uid_map")[0][1] >= 0x2000_0000 && map("gid_map") == map("uid_map"));
                (0, capability_mask(SANDBOX_ROOT_CAPABILITIES))
            }
            IdMode::Subordinate(ids) => {
                assert_eq!(map("uid_map"), [vec![0, bench.host.euid, 1], vec![1, ids.uid_base, ids.count]]);
                (0, capability_mask(SANDBOX_ROOT_CAPABILITIES))
            }
            IdMode::Single => {
                assert_eq!(map("uid_map"), [vec![1000, bench.host.euid, 1]]);
                assert_eq!(map("gid_map"), [vec![1000, bench.host.egid, 1]]);
                (1000, 0)
            }
        };
        // The agent, and what it starts.
        for status in [report["status"].as_str().unwrap(), report["child"]["Ok"].as_str().unwrap()] {
            assert_eq!(field(status, "Uid"), [id; 4].map(|id: u32| id.to_string()).join("\t"));
            assert_eq!(field(status, "Gid"), [id; 4].map(|id: u32| id.to_string()).join("\t"));
            assert_eq!(field(status, "Groups"), "");
            for set in ["CapPrm", "CapEff", "CapBnd"] {
                assert_eq!(u64::from_str_radix(field(status, set), 16).unwrap(), keep, "{set}");
            }
            for set in ["CapInh", "CapAmb"] {
                assert_eq!(u64::from_str_radix(field(status, set), 16).unwrap(), 0, "{set}");
            }
            assert_eq!(field(status, "NoNewPrivs"), "1");
            assert_eq!(field(status, "Seccomp"), "2");
            // SIGPIPE is ignored by the probe's own runtime, 32 and 33 by the C library in what it starts.
            let ignored = u64::from_str_radix(field(status, "SigIgn"), 16).unwrap();
            assert_eq!(ignored & !(1 << 12 | 0b11 << 31), 0, "{ignored:x}");
            assert_eq!(field(status, "SigBlk"), "0000000000000000");
        }
        assert_eq!(report["home_owner"], json!([1000, 1000, 0o755]));
    });
}

#[test]
fn calls_that_reach_out_are_refused_and_kill_nothing() {
    in_every_mode("rights::calls_that_reach_out_are_refused_and_kill_nothing", |bench| {
        let report = report(bench, &Options::default());
        for (name, answer) in report["calls"].as_object().unwrap() {
            let wanted = match name.as_str() {
                "clone3" | "unknown" | "x32" | "i386" | "io_setup" | "io_submit" => libc::ENOSYS,
                "bluetooth" => libc::EAFNOSUPPORT,
                "netlink-audit" => libc::EPROTONOSUPPORT,
                "netlink-route" => 0,
                _ => libc::EPERM,
            };
            assert_eq!(*answer, json!(wanted), "{name}");
        }
    });
}

#[test]
fn no_file_outside_can_be_written() {
    in_every_mode("rights::no_file_outside_can_be_written", |bench| {
        let before = std::fs::read_dir("/usr/bin").unwrap().count();
        let paths =
            ["/usr/bin", "/usr/bin/env", "/run/sandbar/agent", "/etc", "/tmp", "/dev/shm", "/proc/1/exe"];
        let task = json!({ "task": "report", "write": paths }).to_string();
        let report = bench.report(&task, &Options::default());
        for own in ["/etc", "/tmp", "/dev/shm"] {
            assert_eq!(report["write"][own], 0, "{own}");
        }
        for closed in ["/run/sandbar/agent", "/proc/1/exe"] {
            assert_ne!(report["write"][closed], 0, "{closed}");
        }
        // A range may write its own copy of `/usr`; the others have it read-only.
        let writable = matches!(bench.ids(), IdMode::Range { .. });
        assert_eq!(report["write"]["/usr/bin"] == json!(0), writable, "{}", report["write"]);
        assert_eq!(std::fs::read_dir("/usr/bin").unwrap().count(), before);
        assert!(
            !std::path::Path::new("/etc/.probe").exists() && !std::path::Path::new("/tmp/.probe").exists()
        );
    });
}

#[test]
fn namespaces_and_watches_are_counted_per_sandbox() {
    in_every_mode("rights::namespaces_and_watches_are_counted_per_sandbox", |bench| {
        let mut options = Options::default();
        options.limits.inotify_watches = Some(77);
        options.limits.inotify_instances = Some(7);
        let report = report(bench, &options);
        for (name, value) in report["settings"].as_object().unwrap() {
            let wanted = match name.as_str() {
                "max_inotify_watches" => "77",
                "max_inotify_instances" => "7",
                _ => "0",
            };
            assert_eq!(*value, wanted, "{name}");
        }
    });
}

#[test]
fn message_queues_work() {
    in_every_mode("rights::message_queues_work", |bench| {
        let mut running = bench.start(&json!({ "task": "queue" }).to_string(), &Options::default());
        assert_eq!(running.read_to_end(), "0 4 0\n");
        bench.end(running);
    });
}

#[test]
fn mounts_are_as_asked_and_never_carry_setid_bits() {
    in_every_mode("rights::mounts_are_as_asked_and_never_carry_setid_bits", |bench| {
        let (read, write) = (bench.folder.path().join("ro"), bench.folder.path().join("rw"));
        for folder in [&read, &write] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("file"), "from the host").unwrap();
        }
        let options = Options {
            mounts: vec![
                (read.clone(), "/data/in/here".into(), Access::ReadOnly),
                (write.clone(), "/project".into(), Access::ReadWrite),
                (read.join("file"), "/etc/one-file".into(), Access::ReadOnly),
            ],
            ..Options::default()
        };
        let script = "cat /data/in/here/file /project/file /etc/one-file; touch /data/in/here/x; id -u
            touch /project/made && echo made; touch /project/s && chmod u+s /project/s && echo bad; chmod 755 /project/s && echo good";
        let task = json!({ "task": "shell", "script": script }).to_string();
        let report = bench.report(&task, &options);
        let stdout = report["stdout"].as_str().unwrap();
        assert!(stdout.starts_with("from the hostfrom the hostfrom the host"), "{report}");
        assert!(
            !read.join("x").exists() && report["stderr"].as_str().unwrap().contains("Read-only"),
            "{report}"
        );
        assert!(!stdout.contains("bad"), "{report}");
        // Root of a range has no name on a mount of somebody's; its `user` has, see below.
        if !matches!(bench.ids(), IdMode::Range { .. }) {
            assert!(stdout.contains("made") && stdout.contains("good"), "{report}");
            assert!(write.join("made").exists());
        }
    });
}

#[test]
fn a_mount_of_roots_belongs_to_the_user_of_the_range() {
    if !rustix::process::geteuid().is_root() {
        println!("not tried: only host root maps the ids of a mount");
        return;
    }
    let bench = Bench::new();
    let write = bench.folder.path().join("rw");
    std::fs::create_dir(&write).unwrap();
    std::os::unix::fs::chown(&write, Some(4321), Some(4322)).unwrap();
    let options =
        Options { mounts: vec![(write.clone(), "/project".into(), Access::ReadWrite)], ..Options::default() };
    let script =
        "stat -c %u:%g /project; setpriv --reuid=1000 --regid=1000 --clear-groups touch /project/made";
    let report = bench.report(&json!({ "task": "shell", "script": script }).to_string(), &options);
    assert_eq!(report["stdout"], "1000:1000\n", "{report}");
    let made = std::fs::metadata(write.join("made")).unwrap();
    assert_eq!((made.uid(), made.gid()), (4321, 4322));
}

#[test]
fn what_an_earlier_run_left_does_not_lead_out() {
    in_every_mode("rights::what_an_earlier_run_left_does_not_lead_out", |bench| {
        // The host's files are at `/old` while the root is put together; a link there must not reach them.
        let target = bench.folder.path().join("target");
        std::fs::create_dir(&target).unwrap();
        let (outside, at_old) = (target.join("file"), format!("/old{}", target.display()));
        std::fs::write(&outside, "untouched").unwrap();
        let options = Options {
            left: vec![
                ("etc/hostname", format!("{at_old}/file").into()),
                ("etc/hosts", outside.clone()),
                ("etc/machine-id", outside.clone()),
                ("home/user", at_old.clone().into()),
                ("project", at_old.clone().into()),
            ],
            mounts: vec![(bench.folder.path().join("skeleton"), "/project/deep".into(), Access::ReadOnly)],
            ..Options::default()
        };
        // A mount through a link that leads nowhere inside is refused; without it the launch goes on.
        assert!(bench.try_start("{}", &options).is_err());
        let report = report(bench, &Options { mounts: Vec::new(), ..options });
        assert_eq!(report["hostname"]["Ok"], "probe-box\n");
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "untouched");
        assert_eq!(std::fs::read_dir(&target).unwrap().count(), 1);

        let top = Options { left: vec![("proc", "/tmp".into())], ..Options::default() };
        let error = bench.try_start("{}", &top).unwrap_err();
        assert_eq!(error.errno(), Some(libc::ELOOP), "{error}");
    });
}
