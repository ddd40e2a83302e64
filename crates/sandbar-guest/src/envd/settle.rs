//! When a process counts as ended whose agent does not say so.
//!
//! The agent ends a process' stream once nobody holds its output: a descendant that lives on keeps it open for as long as it likes. So after a while the
//! process itself is looked for, again and again; once it is positively gone, what it said and how it ended gets a short time to arrive, and after that
//! its outcome is unknown. This is a state machine over a clock that the caller reads: no I/O, no waiting.

use std::time::Duration;

/// How long a process may take before it is looked for: most are over by then, and cost nothing more. The reference's own.
pub(super) const SETTLE: Duration = Duration::from_millis(1500);
/// From the first look to the second.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// Longest time between two looks: what a command that ended under a held stream costs at most, beyond the grace.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long the stream may be silent after its process is known to be gone: a real end comes right behind the exit. The reference's own.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// How long output may go on after that in all: what the process wrote last may still be on its way, and what a descendant writes has no end.
pub(super) const DRAIN: Duration = Duration::from_secs(30);

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Read the stream, at most until then.
    ReadUntil(Duration),
    /// Look for the process, and go on reading meanwhile.
    Look,
    /// Read the stream while somebody looks.
    ReadOn,
    /// The process is gone and nobody will say how it ended.
    GiveUp,
}

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// It is there, or nobody could tell: a failed look is no evidence of an end.
    Alive,
    /// It positively ended.
    Gone,
}

/// The state. All times are from the process' start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settlement {
    state: State,
    pause: Duration,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Running { look_at: Duration },
    Looking,
    Gone { since: Duration, heard: Duration },
}

impl Settlement {
    /// Of a process that just started.
    pub(super) fn new() -> Self {
        Self { state: State::Running { look_at: SETTLE }, pause: FIRST_PAUSE }
    }

    /// What to do at `now`.
    pub(super) fn step(&mut self, now: Duration) -> Step {
        match self.state {
            State::Running { look_at } if now >= look_at => {
                self.state = State::Looking;
                Step::Look
            }
            State::Running { look_at } => Step::ReadUntil(look_at),
            State::Looking => Step::ReadOn,
            State::Gone { since, heard } => {
                let end = (heard + GRACE).min(since + DRAIN);
                if now >= end { Step::GiveUp } else { Step::ReadUntil(end) }
            }
        }
    }

    /// Output came.
    pub(super) fn heard(&mut self, now: Duration) {
        if let State::Gone { heard, .. } = &mut self.state {
            *heard = now;
        }
    }

    /// A look ended.
    pub(super) fn found(&mut self, now: Duration, life: Life) {
        if !matches!(self.state, State::Looking) {
            return;
        }
        self.state = match life {
            Life::Gone => State::Gone { since: now, heard: now },
            Life::Alive => State::Running { look_at: now + self.pause },
        };
        self.pause = (self.pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Plays a process whose stream is held, with looks that take `cost` and answer as `answer` says. Answers when it gave up,
    /// and how often it looked.
    fn play(
        cost: Duration,
        output_every: Option<Duration>,
        until: Duration,
        answer: impl Fn(Duration) -> Life,
    ) -> (Option<Duration>, Vec<Duration>) {
        let (mut settlement, mut now, mut looks) = (Settlement::new(), Duration::ZERO, Vec::new());
        while now < until {
            match settlement.step(now) {
                Step::ReadUntil(next) => {
                    assert!(next > now, "it would spin at {now:?}");
                    now = match output_every {
                        Some(every) if now + every < next => {
                            settlement.heard(now + every);
                            now + every
                        }
                        _ => next,
                    };
                }
                Step::Look => {
                    looks.push(now);
                    let life = answer(now);
                    assert_eq!(settlement.step(now), Step::ReadOn, "one look at a time");
                    now += cost;
                    settlement.found(now, life);
                }
                Step::ReadOn => unreachable!("every look ends at once here"),
                Step::GiveUp => return (Some(now), looks),
            }
        }
        (None, looks)
    }

    #[test]
    fn what_is_over_within_the_window_is_not_looked_for() {
        let mut settlement = Settlement::new();
        assert_eq!(settlement.step(Duration::ZERO), Step::ReadUntil(SETTLE));
        assert_eq!(settlement.step(SETTLE.saturating_sub(Duration::from_millis(1))), Step::ReadUntil(SETTLE));
        assert_eq!(settlement.step(SETTLE), Step::Look);
    }

    #[test]
    fn a_held_stream_costs_the_window_a_look_and_the_grace() {
        let gone = |_| Life::Gone;
        let (gave_up, looks) = play(Duration::from_millis(50), None, Duration::MAX, gone);
        assert_eq!(gave_up, Some(SETTLE + Duration::from_millis(50) + GRACE));
        assert_eq!(looks.len(), 1);
    }

    #[test]
    fn a_chatty_descendant_does_not_keep_it_for_ever() {
        let gone = |_| Life::Gone;
        let every = Some(Duration::from_millis(500));
        let (gave_up, _) = play(Duration::ZERO, every, Duration::MAX, gone);
        assert_eq!(gave_up, Some(SETTLE + DRAIN));
    }

    proptest! {
        #[test]
        fn it_gives_up_soon_after_the_end_and_never_before(end_ms in 0_u64..600_000, cost_ms in 0_u64..10_000) {
            let (end, cost) = (Duration::from_millis(end_ms), Duration::from_millis(cost_ms));
            let answer = |now| if now >= end { Life::Gone } else { Life::Alive };
            let (gave_up, looks) = play(cost, None, Duration::from_secs(3600), answer);
            let gave_up = gave_up.expect("it ends");
            prop_assert!(gave_up >= end + GRACE);
            prop_assert!(gave_up <= end.max(SETTLE) + LONGEST_PAUSE + 2 * cost + GRACE);
            prop_assert!(looks.windows(2).all(|pair| pair[1] >= pair[0] + FIRST_PAUSE));
            let most = 2 + end_ms / u64::try_from(FIRST_PAUSE.as_millis()).unwrap();
            prop_assert!(looks.len() as u64 <= most);
        }

        /// Whatever comes in whatever order: without a look that found it gone, nobody gives up.
        #[test]
        fn only_a_look_that_found_it_gone_ends_it(events in prop::collection::vec((0_u64..20_000, 0..4_u8), 0..60)) {
            let (mut settlement, mut now, mut was_found_gone) = (Settlement::new(), Duration::ZERO, false);
            for (pass_ms, what) in events {
                now += Duration::from_millis(pass_ms);
                match what {
                    0 => settlement.heard(now),
                    1 => settlement.found(now, Life::Alive),
                    2 => {
                        was_found_gone |= matches!(settlement.state, State::Looking);
                        settlement.found(now, Life::Gone);
                    }
                    _ => {}
                }
                match settlement.step(now) {
                    Step::GiveUp => prop_assert!(was_found_gone),
                    Step::ReadUntil(until) => prop_assert!(until > now),
                    Step::Look | Step::ReadOn => prop_assert!(!was_found_gone),
                }
            }
        }
    }
}
