//! Limits, deaths, and what is left afterwards.

use std::path::Path;
use std::time::{Duration, Instant};

use sandbar_engine::{Cgroup, Enforcement, Limits, proc_id};
use serde_json::json;

use crate::harness::{BOUND, Bench, Options};
use crate::modes::in_every_mode;

fn with(limits: Limits) -> Options {
    Options { limits, ..Options::default() }
}

#[test]
fn a_fork_bomb_ends_at_its_limit() {
    in_every_mode("limits::a_fork_bomb_ends_at_its_limit", |bench| {
        let options = with(Limits { pids: Some(40), ..Limits::default() });
        let running = bench.start(&json!({ "task": "processes" }).to_string(), &options);
        let mut running = running;
        let line = running.read_line();
        let (count, errno) = line.trim().split_once(' ').unwrap();
        assert_eq!(errno, libc::EAGAIN.to_string());
        let count: u32 = count.parse().unwrap();
        assert!((30..=40).contains(&count), "{count}");
        if let Some(group) = &running.cgroup
            && group.enforced()[2] == Enforcement::Enforced
        {
            assert!(group.events().pids_hits.unwrap() > 0);
            assert_eq!(group.stats().pids, Some(u64::from(count) + 1), "{count}");
        }
        bench.end(running);
    });
}

#[test]
fn a_memory_bomb_hurts_only_its_own() {
    in_every_mode("limits::a_memory_bomb_hurts_only_its_own", |bench| {
        let options = with(Limits { memory_bytes: Some(64 << 20), ..Limits::default() });
        let task = json!({ "task": "memory", "bytes": 256 << 20 }).to_string();
        let mut running = bench.start(&task, &options);
        let enforced =
            running.cgroup.as_ref().is_some_and(|group| group.enforced()[0] == Enforcement::Enforced);
        let text = running.read_to_end();
        if enforced {
            assert_eq!(text, "signal 9\n");
            let group = running.cgroup.as_ref().unwrap();
            assert!(group.events().oom_kills.unwrap() >= 1);
            assert!(group.stats().memory_peak_bytes.unwrap() <= 64 << 20);
            assert!(group.stats().cpu_usec.is_some());
        } else {
            println!("no group here counts memory: {text}");
        }
        bench.end(running);
    });
}

#[test]
fn buffers_of_sockets_count_as_memory() {
    in_every_mode("limits::buffers_of_sockets_count_as_memory", |bench| {
        let options = with(Limits { memory_bytes: Some(64 << 20), ..Limits::default() });
        let mut running = bench.start(&json!({ "task": "sockets" }).to_string(), &options);
        let enforced =
            running.cgroup.as_ref().is_some_and(|group| group.enforced()[0] == Enforcement::Enforced);
        let text = running.read_to_end();
        bench.end(running);
        if enforced {
            let bytes: u64 = text.trim().parse().unwrap_or_else(|_| panic!("{text}"));
            // The kernel lets each socket have a few pages beyond the limit.
            assert!(bytes < 96 << 20, "{bytes} bytes in buffers");
        } else {
            println!("no group here counts memory: {text}");
        }
    });
}

#[test]
fn a_file_grows_to_its_limit() {
    in_every_mode("limits::a_file_grows_to_its_limit", |bench| {
        let options = with(Limits { disk_bytes: Some(1 << 20), ..Limits::default() });
        let mut running = bench.start(&json!({ "task": "big-file" }).to_string(), &options);
        assert_eq!(running.read_to_end(), format!("{} {}\n", 1 << 20, libc::EFBIG));
        bench.end(running);
    });
}

#[test]
fn groups_freeze_thaw_kill_and_are_found_again() {
    in_every_mode("limits::groups_freeze_thaw_kill_and_are_found_again", |bench| {
        let mut running = bench.start(&json!({ "task": "wait" }).to_string(), &Options::default());
        assert_eq!(running.read_line(), "ready\n");
        let Some(group) = &running.cgroup else {
            println!("no group for this user here");
            return bench.end(running);
        };
        let found = Cgroup::reopen(&bench.host.cgroups, &running.name).unwrap().unwrap();
        assert!(Cgroup::list(&bench.host.cgroups).contains(&running.name));
        assert_eq!(found.processes().unwrap(), [running.pid()]);
        if found.can_freeze() {
            found.freeze(BOUND).unwrap();
            found.thaw(BOUND).unwrap();
        }
        let mut changed = found.clone();
        changed.update(&Limits { pids: Some(5), ..Limits::default() }).unwrap();
        assert_eq!(
            Cgroup::reopen(&bench.host.cgroups, &running.name).unwrap().unwrap().enforced(),
            changed.enforced()
        );
        group.kill(BOUND).unwrap();
        running.kill();
        assert!(!proc_id::alive(running.launched.pid, running.launched.start_time).unwrap());
        bench.end(running);
    });
}

#[test]
fn a_launch_that_fails_leaves_nothing_and_names_the_step() {
    in_every_mode("limits::a_launch_that_fails_leaves_nothing_and_names_the_step", |bench| {
        let before = Left::look(bench);
        let mut broken = Bench::new();
        let text = broken.folder.path().join("not-a-program");
        std::fs::write(&text, "just text").unwrap();
        std::fs::set_permissions(&text, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        broken.probe = text;
        let error = broken.try_start("{}", &Options::default()).unwrap_err();
        assert!(error.to_string().contains("execute /run/sandbar/agent"), "{error}");
        assert_eq!(error.errno(), Some(libc::ENOEXEC));
        drop(broken);
        assert_eq!(Left::look(bench), before);
    });
}

#[test]
fn a_hundred_launches_leave_nothing() {
    in_every_mode("limits::a_hundred_launches_leave_nothing", |bench| {
        let before = Left::look(bench);
        let started = Instant::now();
        for _ in 0..100 {
            let running = bench.start(&json!({ "task": "wait" }).to_string(), &Options::default());
            bench.end(running);
        }
        println!("{:?} for a launch and its end", started.elapsed() / 100);
        let end = Instant::now() + BOUND;
        // The kernel takes a namespace's mounts apart a little after its last process.
        while Left::look(bench) != before {
            assert!(Instant::now() < end, "{:?} is not {before:?}", Left::look(bench));
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Everything of this process that a launch could leave.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    mounts: usize,
    descriptors: usize,
    children: String,
    groups: Vec<String>,
    files: usize,
}

impl Left {
    fn look(bench: &Bench) -> Self {
        let own = format!("t{}-", std::process::id());
        Self {
            mounts: std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count(),
            descriptors: std::fs::read_dir("/proc/thread-self/fd").unwrap().count(),
            children: std::fs::read_to_string(Path::new("/proc/thread-self/children")).unwrap(),
            groups: Cgroup::list(&bench.host.cgroups).into_iter().filter(|id| id.starts_with(&own)).collect(),
            files: std::fs::read_dir(bench.folder.path()).unwrap().count(),
        }
    }
}
