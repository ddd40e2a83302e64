//! Many users at once, for long.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;

use crate::api::Api;
use crate::life::live;
use crate::look::Footprint;
use crate::served::Served;
use crate::soak;

/// Users at once, and in the short run.
const USERS: usize = 24;
const FEW_USERS: usize = 6;
/// A part of the time before anything is compared: caches, pools and tables have their size then.
const WARM_UP: u32 = 5;
/// How much more memory may be in use in the end, in hundredths, of a long run.
const MORE_PERCENT: u64 = 5;
/// The same of a short run, in KiB: it ends before all is warm.
const MORE_SHORT: u64 = 32 << 10;

/// `SANDBAR_SOAK` is the time in seconds.
#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_leave_nothing() {
    let mut served = Served::start().await;
    let time = soak().map(Duration::from_secs);
    let users = if time.is_some() { USERS } else { FEW_USERS };
    let warm_up = time.map(|time| time / WARM_UP);
    let lived = lives(&served.api, users, warm_up).await;
    let before = Footprint::settled(served.pid(), None).await;
    println!("after {lived} lives: {before:?}");
    let lived = lives(&served.api, users, time).await;
    let after = Footprint::settled(served.pid(), Some(before)).await;
    println!("after {lived} more: {after:?}");
    let more = if time.is_some() { before.memory * MORE_PERCENT / 100 } else { MORE_SHORT };
    assert!(after.memory <= before.memory + more, "{before:?}, then {after:?}");
    assert!(after.threads <= before.threads.max(64), "{before:?}, then {after:?}");
    assert_eq!(served.api.list().await.expect("a listing"), Vec::<String>::new());
    served.stop().await;
    served.assert_nothing_left().await;
}

/// Leads one life after another with so many users, each one at least, and answers how many. No error is a small one.
async fn lives(api: &Api, users: usize, time: Option<Duration>) -> usize {
    let (number, end) = (AtomicUsize::new(0), time.map(|time| Instant::now() + time));
    let user = async || {
        loop {
            let number = number.fetch_add(1, Ordering::Relaxed);
            live(api, number).await.unwrap_or_else(|why| panic!("{why}"));
            if end.is_none_or(|end| Instant::now() >= end) {
                return;
            }
        }
    };
    join_all((0..users).map(|_| user())).await;
    number.into_inner()
}
