use std::time::{Duration, Instant};

/// So many at once, and so many more as time goes by.
#[derive(Debug)]
pub(crate) struct Budget {
    burst: f64,
    per_second: f64,
    left: f64,
    since: Instant,
}

impl Budget {
    /// `burst` at once, and `count` in each `period` in the long run.
    pub(crate) fn new(burst: u32, count: u32, period: Duration, now: Instant) -> Self {
        let burst = f64::from(burst);
        Self { burst, per_second: f64::from(count) / period.as_secs_f64(), left: burst, since: now }
    }

    /// Takes one, if one is left.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        self.left = (self.left + passed * self.per_second).min(self.burst);
        self.since = self.since.max(now);
        let has_one = self.left >= 1.0;
        if has_one {
            self.left -= 1.0;
        }
        has_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_up_comes_back_with_time_and_not_beyond_the_burst() {
        let start = Instant::now();
        let mut budget = Budget::new(3, 60, Duration::from_secs(60), start);
        assert_eq!((0..5).filter(|_| budget.take(start)).count(), 3);
        assert!(!budget.take(start + Duration::from_millis(900)));
        assert!(budget.take(start + Duration::from_millis(1100)));
        let later = start + Duration::from_secs(3600);
        assert_eq!((0..10).filter(|_| budget.take(later)).count(), 3);
        assert!(!budget.take(start), "time that goes back gives nothing");
    }
}
