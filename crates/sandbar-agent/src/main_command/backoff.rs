use std::time::Duration;

/// Pause before the first new start: a command that fails at once does not spin, and one that fell over once is back at once.
const FIRST: Duration = Duration::from_millis(100);
/// Longest pause: each is twice the one before, and nobody waits for a service longer than this.
const LONGEST: Duration = Duration::from_secs(60);
/// A command that ran this long ran well, and the next pause is the first again.
const RAN_WELL: Duration = Duration::from_secs(10);

/// How long to wait before a command is started again.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn new() -> Self {
        Self(FIRST)
    }

    /// The pause after a command that ran for `ran`.
    pub(super) fn next(&mut self, ran: Duration) -> Duration {
        if ran >= RAN_WELL {
            self.0 = FIRST;
        }
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew_after_a_good_run() {
        let mut backoff = Backoff::new();
        let pauses: Vec<_> = (0..12).map(|_| backoff.next(Duration::ZERO).as_millis()).collect();
        assert_eq!(pauses[..4], [100, 200, 400, 800]);
        assert_eq!(pauses[9..], [51_200, 60_000, 60_000]);
        assert_eq!(backoff.next(RAN_WELL), FIRST);
        assert_eq!(backoff.next(Duration::from_secs(9)), FIRST * 2);
    }
}
