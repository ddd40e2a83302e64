//! What is tried again, and when.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

use crate::retry_after::retry_after;

/// How often a call is tried again, and how long in all.
///
/// A connection that did not come about is always tried again. So is `429` with a `Retry-After`, by which the server says that it did nothing
/// and when it will. All else only where a repetition does no harm ([`Idempotency`](crate::Idempotency)): `408`, `425`, `429`, `5xx`, and
/// answers that broke off or did not come. `Should-Retry: false` ends it, and `true` makes any status one that is tried again. The pauses
/// are drawn at random below a bound that doubles; a `Retry-After` is waited out. One that lies beyond the end of [`RetryPolicy::with_total`]
/// is not waited for at all: the answer is handed back with it.
#[derive(Clone, Debug)]
pub struct RetryPolicy {
    attempts: u32,
    first: Duration,
    longest: Duration,
    total: Duration,
    statuses: Vec<StatusCode>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 4,
            first: Duration::from_millis(250),
            longest: Duration::from_secs(10),
            total: Duration::from_secs(60),
            statuses: Vec::new(),
        }
    }
}

impl RetryPolicy {
    /// One attempt and no other.
    pub fn once() -> Self {
        Self::default().with_attempts(1)
    }

    /// Most attempts, the first among them. Default 4, as in the field's clients (three repetitions).
    pub fn with_attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// The bound of the first pause, which doubles with each, and the highest it gets. Default 250 ms and 10 s.
    pub fn with_pauses(mut self, first: Duration, longest: Duration) -> Self {
        self.first = first;
        self.longest = longest.max(first);
        self
    }

    /// How long after the call began an attempt may still start. Default 60 s; the call takes at most this and one attempt's timeout.
    pub fn with_total(mut self, total: Duration) -> Self {
        self.total = total;
        self
    }

    /// Statuses of this call that are tried again as well, where a repetition does no harm: such as `404` for a thing that was just made and
    /// isn't known everywhere yet.
    pub fn with_statuses(mut self, statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        self.statuses.extend(statuses);
        self
    }
}

/// What is known about an attempt, for judging whether there is another.
pub(crate) enum Ended<'a> {
    /// Nothing reached the server.
    Unsent,
    /// The request may have reached it, and no whole answer came.
    Unanswered,
    Answered(StatusCode, &'a HeaderMap),
    /// Another attempt would end the same way.
    Final,
}

/// Where a call stands.
pub(crate) struct Standing {
    /// Attempts that were made.
    pub(crate) attempts: u32,
    /// Since the first began.
    pub(crate) elapsed: Duration,
    /// Whether the request, as it is, may reach the server twice.
    pub(crate) may_repeat: bool,
    /// Whether it can be sent once more at all: a stream that was begun can't.
    pub(crate) can_repeat: bool,
    pub(crate) now: SystemTime,
}

impl RetryPolicy {
    /// How long to wait before the next attempt, if there is one. `random` is in `0.0..1.0`.
    pub(crate) fn pause(&self, ended: &Ended<'_>, standing: &Standing, random: f64) -> Option<Duration> {
        if standing.attempts >= self.attempts || !standing.can_repeat {
            return None;
        }
        let asked = match ended {
            Ended::Unsent => None,
            Ended::Unanswered if standing.may_repeat => None,
            Ended::Unanswered | Ended::Final => return None,
            Ended::Answered(status, headers) => {
                let asked = retry_after(headers, standing.now);
                if !self.is_repeated(*status, headers, asked.is_some(), standing.may_repeat) {
                    return None;
                }
                asked
            }
        };
        let doubled = self.first.saturating_mul(1_u32.checked_shl(standing.attempts - 1).unwrap_or(u32::MAX));
        let drawn = doubled.min(self.longest).mul_f64(random.clamp(0.0, 1.0));
        // All who were sent away at once were told the same: they come back one after another.
        let pause = asked.map_or(drawn, |asked| asked.saturating_add(drawn.min(asked / 10)));
        (standing.elapsed.saturating_add(pause) <= self.total).then_some(pause)
    }

    fn is_repeated(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        is_told_when: bool,
        may_repeat: bool,
    ) -> bool {
        let should = headers.get("should-retry").and_then(|value| value.to_str().ok()).map(str::trim);
        if should.is_some_and(|should| should.eq_ignore_ascii_case("false")) {
            return false;
        }
        if status == StatusCode::TOO_MANY_REQUESTS && is_told_when {
            return true;
        }
        let is_passing = status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
            || matches!(
                status,
                StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
            );
        let is_asked = should.is_some_and(|should| should.eq_ignore_ascii_case("true"));
        may_repeat && (is_passing || is_asked || self.statuses.contains(&status))
    }
}

#[cfg(test)]
mod tests;
