//! What a launch costs. The numbers are printed; the bound is far above them, for a machine that is busy.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::Options;
use crate::modes::in_every_mode;

#[test]
fn a_launch_is_quick() {
    const RUNS: usize = 50;
    const BUSY_BOUND: Duration = Duration::from_millis(250);
    in_every_mode("cost::a_launch_is_quick", |bench| {
        let (mut prepared, mut launched, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        let mut cpu = Vec::new();
        for _ in 0..RUNS {
            let started = Instant::now();
            let running = bench.start(&json!({ "task": "wait" }).to_string(), &Options::default());
            prepared.push(started.elapsed());
            launched.push(running.launch_time);
            if let Some(usec) = running.cgroup.as_ref().and_then(|group| group.stats().cpu_usec) {
                cpu.push(Duration::from_micros(usec));
            }
            let started = Instant::now();
            bench.end(running);
            ended.push(started.elapsed());
        }
        for (what, times) in [
            ("with groups", &mut prepared),
            ("launch", &mut launched),
            ("its processor time", &mut cpu),
            ("end", &mut ended),
        ] {
            times.sort_unstable();
            if let (Some(best), Some(median)) = (times.first(), times.get(RUNS / 2)) {
                println!("{what}: best {best:?}, median {median:?}");
            }
        }
        assert!(launched[RUNS / 2] < BUSY_BOUND, "{:?}", launched[RUNS / 2]);
    });
}
