use std::time::Duration;

use sandbar::Error;

use crate::args::StatsArgs;
use crate::failure::{Failure, Result};

/// Time between two measurements where nobody says: long enough for a steady share, short enough to watch.
const INTERVAL: Duration = Duration::from_secs(2);
/// Least time between two measurements: each counts files, which takes tens of milliseconds where there are many.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// `stats`.
#[derive(Debug)]
pub(crate) struct StatsSettings {
    /// Every running one if absent.
    pub(crate) id: Option<String>,
    /// How often to measure; once if absent.
    pub(crate) interval: Option<Duration>,
}

impl StatsSettings {
    pub(crate) fn resolve(args: StatsArgs) -> Result<Self> {
        let StatsArgs { id, watch, interval } = args;
        let interval = interval.map_or(INTERVAL, |interval| interval.0);
        if interval < MIN_INTERVAL {
            let message =
                format!("an interval of {} ms is not valid: expected at least 100ms", interval.as_millis());
            return Err(Failure::usage(Error::invalid("parse --interval", message)));
        }
        Ok(Self { id, interval: watch.then_some(interval) })
    }
}
