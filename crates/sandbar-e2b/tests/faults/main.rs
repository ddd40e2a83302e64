//! What networks and proxies do between the backend and its server, for each operation of the control plane: the outcome is the right result or an
//! error that says what is unknown; never a hang, and never a success that is none.
//!
//! The server is our own over the reference backend, in this process: what is there afterwards is looked at behind it.

mod bed;
mod operations;
mod pages;
mod weather;

use std::time::Duration;

use futures::future::join_all;
use sandbar::{Error, ErrorKind, Retry};
use sandbar_http::testing::Rule;
use tokio::time::timeout;

use bed::{Bed, words};
use operations::{Case, OPERATIONS};
use weather::{Expect, Weather};

/// Longest time that a call may take which is not held: four attempts, the pauses between them, and a busy machine.
const BOUND: Duration = Duration::from_secs(120);

/// Every operation in this weather, each with a sandbox and a proxy of its own.
async fn try_all(weather: Weather) {
    let bed = Bed::new().await;
    join_all(OPERATIONS.iter().map(|operation| async {
        let case = Case::new(&bed, operation).await;
        let mut rule = Rule::on("*", "*");
        if let Some(times) = weather.times {
            rule = rule.times(times);
        }
        let injected = case.proxy.inject(rule, (weather.fault)());
        let outcome = timeout(BOUND, case.run()).await;
        let what = format!("{} in {}", operation.name, weather.name);
        let outcome = outcome.unwrap_or_else(|_| panic!("{what}: hangs"));
        assert!(injected.hits() > 0 || weather.is_within_body, "{what}: the fault did not happen");
        judge(&what, &weather, &case, outcome).await;
    }))
    .await;
}

async fn judge(what: &str, weather: &Weather, case: &Case<'_>, outcome: Result<(), Error>) {
    match outcome {
        // A success is one: what it promises is looked at behind the server.
        Ok(()) => {
            assert!(weather.expect != Expect::Failure, "{what}: it can't have succeeded");
            case.has_happened().await.unwrap_or_else(|why| panic!("{what}: no true success: {why}"));
        }
        Err(error) => {
            assert!(weather.expect != Expect::Success, "{what}: {error:?}");
            assert!(
                !matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::Unsupported | ErrorKind::AlreadyExists
                ),
                "{what}: says what it can't know: {error:?}"
            );
            assert!(!error.message().is_empty() && error.backend() == Some("e2b"), "{what}: {error:?}");
            let said = words(&error);
            assert!(!said.contains(&case.bed.key), "{what}: {said}");
            if case.operation.makes_anew && error.retry() != Retry::OutcomeUnknown {
                let left = case.made_anew().await;
                assert!(left.is_empty(), "{what}: {error:?} hides {left:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_no_harm_changes_no_result() {
    for weather in weather::harmless() {
        try_all(weather).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_are_refusals() {
    for weather in weather::refusals() {
        try_all(weather).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_of_the_server_or_a_proxy_are_errors_that_say_so() {
    join_all(weather::failures().into_iter().map(try_all)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_break_are_errors_or_survived() {
    join_all(weather::breaks().into_iter().map(try_all)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_make_no_sense_are_no_successes() {
    join_all(weather::nonsense().into_iter().map(try_all)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_is_awaited_and_then_right_and_who_gives_up_leaves_no_connection() {
    for weather in weather::held() {
        let bed = Bed::new().await;
        for operation in OPERATIONS {
            let what = format!("{} in {}", operation.name, weather.name);
            let case = Case::new(&bed, operation).await;
            let injected = case.proxy.inject(Rule::on("*", "*"), (weather.fault)());
            let release = async {
                injected.until_hit(1).await;
                injected.release();
            };
            let both = async { tokio::join!(case.run(), release) };
            let (outcome, ()) = timeout(BOUND, both).await.unwrap_or_else(|_| panic!("{what}: hangs"));
            outcome.unwrap_or_else(|error| panic!("{what}: {error:?}"));
            case.has_happened().await.unwrap_or_else(|why| panic!("{what}: no true success: {why}"));

            let case = Case::new(&bed, operation).await;
            let injected = case.proxy.inject(Rule::on("*", "*"), (weather.fault)());
            tokio::select! {
                outcome = case.run() => panic!("{what}: it is held, and there is {outcome:?}"),
                () = injected.until_hit(1) => (),
            }
            timeout(BOUND, case.proxy.until_open(0))
                .await
                .unwrap_or_else(|_| panic!("{what}: a connection is left"));
        }
    }
}
