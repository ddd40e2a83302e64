use std::time::Duration;

use serde::Serialize;

/// Measurements of one thing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    values: Vec<f64>,
    /// Whether more is better: then percentiles count from the best down, too.
    rates: bool,
    failed: usize,
    first_failure: Option<String>,
}

/// What is told of them.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Summary {
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) count: usize,
    pub(crate) failed: usize,
    pub(crate) first_failure: Option<String>,
}

impl Samples {
    /// Of what is better the more it is.
    pub(crate) fn rates() -> Self {
        Self { rates: true, ..Self::default() }
    }

    /// Notes how long it took, in milliseconds, or that it failed.
    pub(crate) fn took<T>(&mut self, took: Duration, outcome: Result<T, String>) {
        self.value(took.as_secs_f64() * 1000.0, outcome);
    }

    /// Notes a value in the row's unit.
    pub(crate) fn value<T>(&mut self, value: f64, outcome: Result<T, String>) {
        match outcome {
            Ok(_) => self.values.push(value),
            Err(why) => {
                self.failed += 1;
                self.first_failure.get_or_insert(why);
            }
        }
    }

    /// Percentiles by the nearest rank: each is a value that was measured.
    pub(crate) fn summary(mut self) -> Summary {
        self.values.sort_by(f64::total_cmp);
        if self.rates {
            self.values.reverse();
        }
        let at = |percent: usize| {
            let rank = (self.values.len() * percent).div_ceil(100).max(1);
            self.values.get(rank - 1).copied().unwrap_or(f64::NAN)
        };
        Summary {
            p50: at(50),
            p95: at(95),
            p99: at(99),
            count: self.values.len(),
            failed: self.failed,
            first_failure: self.first_failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_values_and_failures_are_no_values() {
        let mut samples = Samples::default();
        for value in (1..=100).rev() {
            samples.value(f64::from(value), Ok(()));
        }
        samples.took(Duration::from_secs(9), Err::<(), _>("no".into()));
        let summary = samples.summary();
        let percentiles = [summary.p50, summary.p95, summary.p99].map(f64::to_bits);
        assert_eq!(percentiles, [50.0, 95.0, 99.0].map(f64::to_bits));
        assert_eq!((summary.count, summary.failed, summary.first_failure.as_deref()), (100, 1, Some("no")));
        let mut rates = Samples::rates();
        for value in 1..=100 {
            rates.value(f64::from(value), Ok(()));
        }
        assert!(rates.summary().p95.total_cmp(&6.0).is_eq(), "as good as this or better in 95 of 100");
        assert!(Samples::default().summary().p50.is_nan());
    }
}
