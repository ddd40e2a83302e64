use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn each_second(key: &str, burst: u32) -> Pace {
    Pace::new(key, SECOND, burst)
}

/// When turns come that are all asked for at once, after `now`.
fn turns(pacer: &Pacer, rates: &[Pace], count: usize, now: Instant) -> Vec<Duration> {
    (0..count).map(|_| pacer.reserve(rates, now).unwrap() - now).collect()
}

#[tokio::test(start_paused = true)]
async fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
    let pacer = Pacer::default();
    let started = Instant::now();
    let mut came = Vec::new();
    for _ in 0..5 {
        pacer.turn(&[each_second("stop m1", 3)]).await.unwrap();
        came.push(started.elapsed().as_secs());
    }
    assert_eq!(came, [0, 0, 0, 1, 2]);
    // What was not used is saved up, and no more than a burst of it.
    tokio::time::advance(60 * SECOND).await;
    let saved = Instant::now();
    for _ in 0..4 {
        pacer.turn(&[each_second("stop m1", 3)]).await.unwrap();
    }
    assert_eq!(saved.elapsed().as_secs(), 1);
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_go_in_the_order_in_which_they_came() {
    let pacer = Pacer::default();
    let order = Arc::new(Mutex::new(Vec::new()));
    let all = (0..8).map(|index| {
        let (pacer, order) = (pacer.clone(), order.clone());
        tokio::spawn(async move {
            pacer.turn(&[each_second("k", 1)]).await.unwrap();
            order.lock().unwrap().push(index);
        })
    });
    for one in futures::future::join_all(all).await {
        one.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..8).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn keys_do_not_wait_for_one_another_and_a_shared_one_holds_for_all() {
    let now = Instant::now();
    let pacer = Pacer::default();
    for key in ["a", "b", "c"] {
        assert_eq!(turns(&pacer, &[each_second(key, 1)], 1, now), [Duration::ZERO], "{key}");
    }
    let pacer = Pacer::default();
    let shared = Pace::new("all", SECOND / 2, 1);
    let came: Vec<_> = ["a", "b", "c"]
        .iter()
        .flat_map(|key| turns(&pacer, &[each_second(key, 1), shared.clone()], 1, now))
        .collect();
    assert_eq!(came, [Duration::ZERO, SECOND / 2, SECOND]);
}

#[tokio::test(start_paused = true)]
async fn who_would_wait_too_long_is_told_at_once_and_takes_no_turn() {
    let pacer = Pacer::new(2 * SECOND);
    let rates = [each_second("free", 1), each_second("k", 1)];
    let now = Instant::now();
    assert_eq!(turns(&pacer, &rates[1..], 3, now), [Duration::ZERO, SECOND, 2 * SECOND]);
    for _ in 0..3 {
        let refused = pacer.turn(&rates).await.unwrap_err();
        assert_eq!(refused, TooFar { key: "k".into(), wait: 3 * SECOND, longest: 2 * SECOND });
    }
    assert_eq!(Instant::now(), now);
    assert_eq!(turns(&pacer, &rates[..1], 1, now), [Duration::ZERO]);
}

#[tokio::test(start_paused = true)]
async fn nobody_goes_while_the_server_wants_none() {
    let pacer = Pacer::default();
    let pace = each_second("k", 3);
    pacer.hold(&pace, 5 * SECOND);
    let now = Instant::now();
    assert_eq!(turns(&pacer, std::slice::from_ref(&pace), 2, now), [5 * SECOND, 6 * SECOND]);
}

#[tokio::test(start_paused = true)]
async fn keys_that_no_longer_matter_are_dropped() {
    let pacer = Pacer::default();
    for key in 0..3 * KEYS {
        pacer.turn(&[each_second(&key.to_string(), 1)]).await.unwrap();
        tokio::time::advance(SECOND / 100).await;
    }
    assert!(pacer.full.lock().unwrap().len() <= KEYS);
}

proptest! {
    /// However calls come, no stretch of time has more of them than the burst and the rate allow.
    #[test]
    fn the_rate_is_kept(gaps in prop::collection::vec(0_u64..1500, 1..60), burst in 1_u32..6) {
        let pacer = Pacer::new(Duration::from_secs(1000));
        let start = Instant::now();
        let pace = each_second("k", burst);
        let mut now = start;
        let mut turns = Vec::new();
        for gap in gaps {
            now += Duration::from_millis(gap);
            let turn = pacer.reserve(std::slice::from_ref(&pace), now).unwrap();
            prop_assert!(turn >= now);
            turns.push(turn);
        }
        prop_assert!(turns.is_sorted());
        for first in 0..turns.len() {
            for last in first..turns.len() {
                let allowed = u64::from(burst) + (turns[last] - turns[first]).as_secs();
                prop_assert!((last - first + 1) as u64 <= allowed);
            }
        }
    }
}
