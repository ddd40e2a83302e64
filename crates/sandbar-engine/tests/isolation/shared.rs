//! What all sandboxes of a user, or of the machine, share: one alone can't take it all.

use sandbar_engine::{IdMode, Limits};
use serde_json::{Value, json};

use crate::harness::{Bench, Options};
use crate::modes::in_every_mode;

/// What one launch gives of each count in a range; see the limits of the engine.
const SIGNALS: u64 = 16_384;
const MESSAGE_BYTES: u64 = 819_200;
const LOCKED_BYTES: u64 = 8 << 20;

fn report(bench: &Bench, options: &Options, paths: &[&str]) -> Value {
    bench.report(&json!({ "task": "report", "read": paths }).to_string(), options)
}

#[test]
fn terminals_end_at_the_sandboxes_own_limit() {
    in_every_mode("shared::terminals_end_at_the_sandboxes_own_limit", |bench| {
        let mut running = bench.start(&json!({ "task": "terminals" }).to_string(), &Options::default());
        assert_eq!(running.read_to_end(), format!("64 {}\n", libc::ENOSPC));
        bench.end(running);
    });
}

#[test]
fn pending_signals_leave_the_owner_some() {
    in_every_mode("shared::pending_signals_leave_the_owner_some", |bench| {
        let own = bench.host.user_counts.signals;
        let mut running = bench.start(&json!({ "task": "signals" }).to_string(), &Options::default());
        let text = running.read_to_end();
        bench.end(running);
        let counts: Vec<u64> = text.split_whitespace().map(|count| count.parse().unwrap()).collect();
        let (one, sum) = (counts[0], counts.iter().sum::<u64>());
        assert!(one > 100, "{counts:?}");
        match bench.ids() {
            IdMode::Range { .. } => assert!(sum <= SIGNALS, "{counts:?}"),
            IdMode::Subordinate(_) | IdMode::Single => {
                let own = own.unwrap_or(u64::MAX);
                assert!(one <= SIGNALS.min(own / 4) && sum <= own / 2, "{counts:?} of {own}");
            }
        }
    });
}

#[test]
fn resource_limits_are_a_share() {
    in_every_mode("shared::resource_limits_are_a_share", |bench| {
        let report = report(bench, &Options::default(), &[]);
        let text = report["limits"]["Ok"].as_str().unwrap();
        let limit = |name: &str| -> Vec<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().take(2).map(|value| value.parse().unwrap()).collect()
        };
        let own = bench.host.user_counts;
        let share = if matches!(bench.ids(), IdMode::Range { .. }) { 1 } else { 4 };
        for (name, most, own) in [
            ("Max pending signals", SIGNALS, own.signals),
            ("Max msgqueue size", MESSAGE_BYTES, own.message_bytes),
            ("Max locked memory", LOCKED_BYTES, own.locked_bytes),
        ] {
            let wanted = most.min(own.unwrap_or(u64::MAX) / share);
            assert_eq!(limit(name), [wanted, wanted], "{name}");
        }
        for name in ["Max nice priority", "Max realtime priority", "Max core file size"] {
            assert_eq!(limit(name), [0, 0], "{name}");
        }
        // The caller has its own again.
        assert_eq!(sandbar_engine::Host::observe().user_counts, own);
    });
}

#[test]
fn system_v_objects_are_bounded_where_root_may() {
    in_every_mode("shared::system_v_objects_are_bounded_where_root_may", |bench| {
        let names = ["sem", "shmall", "shmmax", "msgmni"];
        let paths = names.map(|name| format!("/proc/sys/kernel/{name}"));
        let limits = Limits { memory_bytes: Some(256 << 20), ..Limits::default() };
        let options = Options { limits, ..Options::default() };
        let report = report(bench, &options, &paths.each_ref().map(String::as_str));
        let values = paths.map(|path| {
            report["read"][path].as_str().unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
        });
        // Since Linux 6.9 root of a user namespace may change them; before, and where there is no root, the kernel's stand.
        let mut release = bench.host.kernel.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        let release = (release.next().unwrap(), release.next().unwrap());
        if bench.ids().has_root() && release >= (6, 9) {
            let page = rustix::param::page_size() as u64;
            let pages = ((256 << 20) / page).to_string();
            assert_eq!(values, ["1000 32000 500 1000", &pages, "268435456", "2048"]);
        } else {
            println!("these settings can't be changed by this user: {values:?}");
            assert_ne!(values[0], "1000 32000 500 1000");
        }
        let host = std::fs::read_to_string("/proc/sys/kernel/shmmax").unwrap();
        assert_ne!(host.trim(), "268435456", "the host's own was changed");
    });
}

#[test]
fn a_sandbox_stays_the_preferred_victim_where_root_says_so() {
    in_every_mode("shared::a_sandbox_stays_the_preferred_victim_where_root_says_so", |bench| {
        let mut running = bench.start(&json!({ "task": "oom-score" }).to_string(), &Options::default());
        let text = running.read_to_end();
        bench.end(running);
        let said: Value = serde_json::from_str(&text).unwrap();
        let is_root = matches!(bench.ids(), IdMode::Range { .. });
        if is_root && !may_set_the_least_score() {
            println!("the least score is not tried: root has no CAP_SYS_RESOURCE here");
        }
        if is_root && may_set_the_least_score() {
            let refused = json!(libc::EACCES);
            let wanted = json!([
                ["0", refused, "300"],
                ["-1000", refused, "300"],
                ["299", refused, "300"],
                ["900", null, "900"],
                ["300", null, "300"]
            ]);
            assert_eq!(said, wanted);
        } else {
            // A preference: never below its maker's own, and no way to be spared.
            assert_eq!(said[1], json!(["-1000", libc::EACCES, said[0][2]]), "{said}");
        }
    });
}

/// Whether this process has `CAP_SYS_RESOURCE`: in some containers and machines root has not.
fn may_set_the_least_score() -> bool {
    const SYS_RESOURCE: u32 = 24;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(effective.trim(), 16).unwrap() >> SYS_RESOURCE & 1 == 1
}
