use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::config::Limits;
use crate::error::ApiError;
use crate::tenant::Tenant;

/// The header with how much one may ask for at once.
const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
/// The header with how much of that is left.
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
/// The header with the seconds after which all of it is there again.
const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

/// Keys whose counts are looked through for idle ones: below that they cost nothing.
const FORGET_ABOVE: usize = 10_000;

type PerKey = RateLimiter<String, DashMapStateStore<String>, DefaultClock, StateInformationMiddleware>;

/// Counts what each key asks for.
#[derive(Debug)]
pub(crate) struct KeyLimits {
    pub(crate) limits: Limits,
    requests: PerKey,
    clock: DefaultClock,
}

/// How much of its rate a key has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateLeft {
    limit: u32,
    remaining: u32,
    reset: Duration,
}

/// Where the answer's headers are found once a request was counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct RateSlot(Arc<OnceLock<RateLeft>>);

impl KeyLimits {
    pub(crate) fn new(limits: Limits) -> Self {
        let at_least_one = |number: u32| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::per_second(at_least_one(limits.requests_per_second));
        let quota = quota.allow_burst(at_least_one(limits.burst.max(limits.requests_per_second)));
        let clock = DefaultClock::default();
        let requests = RateLimiter::dashmap_with_clock(quota, clock.clone()).with_middleware();
        Self { limits, requests, clock }
    }

    /// Lets a request of the control plane in, or says when to come again.
    pub(crate) fn admit(&self, tenant: &Tenant) -> Result<RateLeft, ApiError> {
        if self.requests.len() > FORGET_ABOVE {
            self.requests.retain_recent();
        }
        match self.requests.check_key(&tenant.key) {
            Ok(snapshot) => {
                let (limit, remaining) =
                    (snapshot.quota().burst_size().get(), snapshot.remaining_burst_capacity());
                Ok(RateLeft { limit, remaining, reset: self.refill(limit - remaining.min(limit)) })
            }
            Err(not_until) => {
                let limit = not_until.quota().burst_size().get();
                let wait = not_until.wait_time_from(self.clock.now());
                let left = RateLeft { limit, remaining: 0, reset: self.refill(limit) };
                let mut error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "Rate limit exceeded")
                    .with_header(header::RETRY_AFTER, HeaderValue::from(seconds(wait)));
                error.headers.extend(left.headers());
                Err(error)
            }
        }
    }

    /// How long it takes until so many are there again.
    fn refill(&self, missing: u32) -> Duration {
        Duration::from_secs(1) * missing / self.limits.requests_per_second.max(1)
    }
}

impl RateLeft {
    fn headers(self) -> [(HeaderName, HeaderValue); 3] {
        [
            (LIMIT, HeaderValue::from(self.limit)),
            (REMAINING, HeaderValue::from(self.remaining)),
            (RESET, HeaderValue::from(seconds(self.reset))),
        ]
    }
}

impl RateSlot {
    pub(crate) fn fill(&self, left: RateLeft) {
        let _ = self.0.set(left);
    }

    /// Adds what is left to an answer, if the request was counted.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        for (name, value) in self.0.get().into_iter().flat_map(|left| left.headers()) {
            headers.entry(name).or_insert(value);
        }
    }
}

/// Whole seconds, none of which is too early: at least one.
fn seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(key: &str) -> Tenant {
        Tenant { id: "t".into(), key: key.into() }
    }

    #[test]
    fn a_key_that_asks_too_much_is_told_when_to_come_again_and_others_are_not() {
        let limits = KeyLimits::new(Limits { requests_per_second: 1, burst: 3, ..Limits::default() });
        for left in [2, 1, 0] {
            assert_eq!(limits.admit(&tenant("a")).unwrap().remaining, left);
        }
        let error = limits.admit(&tenant("a")).unwrap_err();
        assert_eq!(error.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(error.message, "Rate limit exceeded");
        assert!(error.headers.contains(&(header::RETRY_AFTER, HeaderValue::from(1_u64))), "{error:?}");
        assert!(error.headers.contains(&(REMAINING, HeaderValue::from(0_u32))), "{error:?}");
        assert_eq!(limits.admit(&tenant("b")).unwrap().remaining, 2);
    }
}
