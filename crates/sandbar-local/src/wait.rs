//! Waiting in code without a runtime. Every wait is a look at a condition, again and again, up to a bound.

use std::time::{Duration, Instant};

/// Between two looks: far below what a person notices, far above what a look costs.
const STEP: Duration = Duration::from_millis(1);

/// Gives up the processor until the next look.
pub(crate) fn pause() {
    std::thread::sleep(STEP);
}

/// Looks until `condition` holds; `false` means that it did not within `bound`.
pub(crate) fn until<E>(bound: Duration, mut condition: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
    let end = Instant::now() + bound;
    loop {
        if condition()? {
            return Ok(true);
        }
        if Instant::now() >= end {
            return Ok(false);
        }
        pause();
    }
}

/// As [`until`], in a runtime.
pub(crate) async fn until_async<E>(
    bound: Duration,
    mut condition: impl FnMut() -> Result<bool, E>,
) -> Result<bool, E> {
    let end = Instant::now() + bound;
    loop {
        if condition()? {
            return Ok(true);
        }
        if Instant::now() >= end {
            return Ok(false);
        }
        tokio::time::sleep(STEP).await;
    }
}
