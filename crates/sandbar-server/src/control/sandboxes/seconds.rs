use std::time::Duration;

use crate::error::{ApiError, ApiResult};

/// Seconds of a sandbox whose maker says nothing: E2B's newer form.
pub(crate) const DEFAULT_TIMEOUT: u64 = 300;

/// Seconds of a sandbox whose maker says nothing in E2B's older form, of one that is resumed so, and of a fork.
pub(crate) const OLD_DEFAULT_TIMEOUT: u64 = 15;

/// Least seconds that a refresh gives.
pub(crate) const MIN_REFRESH: u64 = 15;

/// The seconds that were asked for, or `otherwise`.
pub(crate) fn positive(asked: Option<i64>, otherwise: u64, longest: Duration) -> ApiResult<u64> {
    let Some(asked) = asked else { return Ok(otherwise.min(longest.as_secs())) };
    let seconds = u64::try_from(asked).ok().filter(|seconds| *seconds > 0).ok_or_else(|| {
        ApiError::bad_request(format!("timeout {asked} is not valid: expected at least 1 second"))
    })?;
    bounded(seconds, longest)
}

/// Refuses more seconds than there may be.
pub(crate) fn bounded(seconds: u64, longest: Duration) -> ApiResult<u64> {
    const HOUR: u64 = 3600;
    let longest = longest.as_secs();
    if seconds <= longest {
        return Ok(seconds);
    }
    let shown = if longest.is_multiple_of(HOUR) {
        format!("{} hours", longest / HOUR)
    } else {
        format!("{longest} seconds")
    };
    Err(ApiError::bad_request(format!("Timeout cannot be greater than {shown}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_positive_and_bounded() {
        let day = Duration::from_secs(24 * 3600);
        assert_eq!(positive(None, 300, day).unwrap(), 300);
        assert_eq!(positive(None, 300, Duration::from_secs(60)).unwrap(), 60);
        assert_eq!(positive(Some(86_400), 300, day).unwrap(), 86_400);
        for bad in [0, -1, i64::MIN] {
            assert!(positive(Some(bad), 300, day).is_err(), "{bad}");
        }
        let error = positive(Some(86_401), 300, day).unwrap_err();
        assert_eq!(error.message, "Timeout cannot be greater than 24 hours");
    }
}
