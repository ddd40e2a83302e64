use http::HeaderValue;
use proptest::prelude::*;

use super::*;

fn standing(may_repeat: bool) -> Standing {
    Standing {
        attempts: 1,
        elapsed: Duration::ZERO,
        may_repeat,
        can_repeat: true,
        now: SystemTime::UNIX_EPOCH,
    }
}

fn headers(of: &[(&'static str, &'static str)]) -> HeaderMap {
    of.iter()
        .map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect()
}

fn answered(status: u16, with: &[(&'static str, &'static str)], may_repeat: bool) -> Option<Duration> {
    let (status, headers) = (StatusCode::from_u16(status).unwrap(), headers(with));
    RetryPolicy::default().pause(&Ended::Answered(status, &headers), &standing(may_repeat), 0.5)
}

#[test]
fn what_did_not_reach_the_server_is_always_tried_again() {
    let policy = RetryPolicy::default();
    assert!(policy.pause(&Ended::Unsent, &standing(false), 0.5).is_some());
    assert!(policy.pause(&Ended::Unanswered, &standing(true), 0.5).is_some());
    assert_eq!(policy.pause(&Ended::Unanswered, &standing(false), 0.5), None);
    assert_eq!(policy.pause(&Ended::Final, &standing(true), 0.5), None);
}

#[test]
fn statuses_that_pass_are_tried_again_where_it_does_no_harm() {
    for status in [408, 425, 429, 500, 502, 503, 504, 520] {
        assert!(answered(status, &[], true).is_some(), "{status}");
        assert_eq!(answered(status, &[], false), None, "{status}");
        assert_eq!(answered(status, &[("should-retry", "false")], true), None, "{status}");
    }
    for status in [200, 204, 301, 400, 401, 403, 404, 409, 422, 501] {
        assert_eq!(answered(status, &[], true), None, "{status}");
        assert!(answered(status, &[("should-retry", "True")], true).is_some(), "{status}");
        assert_eq!(answered(status, &[("should-retry", "true")], false), None, "{status}");
    }
}

#[test]
fn who_was_told_when_to_come_back_does() {
    assert_eq!(answered(429, &[("retry-after", "0")], false), Some(Duration::ZERO));
    let pause = answered(429, &[("retry-after", "2")], false).unwrap();
    assert!((2.0..=2.2).contains(&pause.as_secs_f64()), "{pause:?}");
    assert_eq!(answered(429, &[("retry-after", "2"), ("should-retry", "false")], false), None);
    // What it says of a failure is no word that nothing was done.
    assert_eq!(answered(503, &[("retry-after", "2")], false), None);
    assert_eq!(answered(429, &[("retry-after", "3600")], true), None);
}

#[test]
fn a_status_of_the_calls_own_is_tried_again() {
    let policy = RetryPolicy::default().with_statuses([StatusCode::NOT_FOUND]);
    let headers = HeaderMap::new();
    let ended = Ended::Answered(StatusCode::NOT_FOUND, &headers);
    assert!(policy.pause(&ended, &standing(true), 0.5).is_some());
    assert_eq!(policy.pause(&ended, &standing(false), 0.5), None);
}

proptest! {
    #[test]
    fn attempts_and_time_have_an_end(
        attempts in 1_u32..100,
        most in 1_u32..50,
        elapsed in 0_u64..100_000,
        total in 0_u64..100_000,
        first in 0_u64..5_000,
        longest in 0_u64..5_000,
        random in 0.0_f64..1.0,
        told in prop::option::of(0_u64..200),
    ) {
        let policy = RetryPolicy::default()
            .with_attempts(most)
            .with_total(Duration::from_millis(total))
            .with_pauses(Duration::from_millis(first), Duration::from_millis(longest));
        let mut headers = HeaderMap::new();
        if let Some(told) = told {
            headers.insert("retry-after", HeaderValue::from(told));
        }
        let standing = Standing { attempts, elapsed: Duration::from_millis(elapsed), ..standing(true) };
        let pause = policy.pause(&Ended::Answered(StatusCode::TOO_MANY_REQUESTS, &headers), &standing, random);
        if let Some(pause) = pause {
            prop_assert!(attempts < most);
            prop_assert!(Duration::from_millis(elapsed) + pause <= Duration::from_millis(total));
            match told {
                Some(told) => prop_assert!(pause >= Duration::from_secs(told)),
                None => prop_assert!(pause <= Duration::from_millis(longest.max(first))),
            }
        }
    }

    #[test]
    fn nothing_that_may_have_been_done_is_done_again(status in 200_u16..600, told: bool, should: bool) {
        let mut headers = HeaderMap::new();
        if told {
            headers.insert("retry-after", HeaderValue::from(1));
        }
        if should {
            headers.insert("should-retry", HeaderValue::from_static("true"));
        }
        let status = StatusCode::from_u16(status).unwrap();
        let pause = RetryPolicy::default().pause(&Ended::Answered(status, &headers), &standing(false), 0.1);
        prop_assert_eq!(pause.is_some(), status == StatusCode::TOO_MANY_REQUESTS && told);
    }
}
