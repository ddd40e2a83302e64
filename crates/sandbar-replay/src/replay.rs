use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use fastrand::Rng;

use crate::mutate::mutate;
use crate::seeds::seeds;

/// Changed seeds that a target is tried with: about a second of a slow parser without optimisation.
pub const MUTATIONS: usize = 4000;
/// Where the random numbers start: every run tries the same.
const START: u64 = 0x5a4d_ba12;
/// Most bytes of an input that failed which are shown; the rest can be had by running the target on the seeds.
const SHOWN: usize = 4096;

/// Tries `check` with every seed of `target` and with [`MUTATIONS`] changed ones. Panics as it does, after showing the input.
pub fn replay(target: &str, check: fn(&[u8])) {
    replay_with(target, check, MUTATIONS);
}

/// As [`replay`], with another number of changed seeds.
pub fn replay_with(target: &str, check: fn(&[u8]), mutations: usize) {
    let seeds = seeds(target);
    for seed in &seeds {
        tried(target, check, seed);
    }
    let mut random = Rng::with_seed(START);
    for _ in 0..mutations {
        tried(target, check, &mutate(&seeds, &mut random));
    }
}

fn tried(target: &str, check: fn(&[u8]), input: &[u8]) {
    if let Err(why) = catch_unwind(AssertUnwindSafe(|| check(input))) {
        let shown = &input[..input.len().min(SHOWN)];
        eprintln!("fuzz target `{target}` failed on {} bytes: b\"{}\"", input.len(), shown.escape_ascii());
        resume_unwind(why);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    static SEEN: AtomicUsize = AtomicUsize::new(0);

    fn count(input: &[u8]) {
        SEEN.fetch_add(input.len().min(1), Ordering::Relaxed);
    }

    fn fails_on_a_change(input: &[u8]) {
        assert!(crate::seeds::seeds("frames").iter().any(|seed| seed == input), "changed");
    }

    #[test]
    fn seeds_and_changes_are_tried() {
        replay_with("frames", count, 100);
        assert!(SEEN.load(Ordering::Relaxed) > 50);
        replay_with("frames", fails_on_a_change, 0);
        let failed = catch_unwind(|| replay_with("frames", fails_on_a_change, 100));
        assert!(failed.is_err());
    }

    #[test]
    #[should_panic(expected = "no seeds")]
    fn a_target_without_seeds_is_an_error() {
        replay("no-such-target", count);
    }
}
