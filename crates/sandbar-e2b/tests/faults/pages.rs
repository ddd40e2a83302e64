//! Listings of several pages are whole, or an error; and so is what counts them.

use std::time::Duration;

use futures::TryStreamExt;
use sandbar::{CreateOptions, Error, ErrorKind, Query, SandboxProvider, SandboxRecord};
use sandbar_http::testing::{Answer, Fault, FaultProxy, Rule, Then, Where};
use tokio::time::timeout;

use crate::bed::Bed;

/// One more than a page has.
const COUNT: usize = 101;

async fn list(bed: &Bed, proxy: &FaultProxy) -> Result<Vec<SandboxRecord>, Error> {
    let provider = bed.provider(&proxy.url());
    let listed = async { provider.list(Query::new()).await?.try_collect().await };
    timeout(Duration::from_secs(120), listed).await.expect("a listing ends")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_is_whole_or_an_error() {
    let bed = Bed::new().await;
    let direct = bed.direct();
    for _ in 0..COUNT {
        direct.create(CreateOptions::new()).await.expect("a sandbox");
    }
    let proxy = FaultProxy::start(bed.address).await;
    assert_eq!(list(&bed, &proxy).await.expect("a listing").len(), COUNT);
    assert_eq!(
        (proxy.count("GET", "/v2/sandboxes"), proxy.count("*", "*")),
        (2, 2),
        "a request a page, and no other"
    );

    // What is survived.
    for fault in [
        Fault::Refuse,
        Fault::Lose,
        Fault::status(503, "later"),
        Fault::Body(Where::Byte(100), Then::Reset),
        Fault::Body(Where::End, Then::Close),
        Fault::Split(7),
    ] {
        proxy.clear();
        let injected = proxy.inject(Rule::on("GET", "*").nth(2), fault.clone());
        assert_eq!(list(&bed, &proxy).await.expect("a listing").len(), COUNT, "{fault:?}");
        assert_eq!(injected.hits(), 1, "{fault:?}");
    }
    // What is not: the second page never comes, is cut, is something else, or is the first again.
    let other = || Fault::rewrite(|answer| answer.with_body(r#"{"sandboxes":[]}"#));
    for (fault, rule, kind) in [
        (Fault::status(500, "no"), Rule::on("GET", "*").nth(2).times(99), ErrorKind::Unavailable),
        (Fault::status(403, "no"), Rule::on("GET", "*").nth(2), ErrorKind::PermissionDenied),
        (Fault::Answer(Answer::status(404)), Rule::on("GET", "*").nth(2), ErrorKind::Protocol),
        (Fault::Body(Where::Byte(100), Then::End), Rule::on("GET", "*").nth(2), ErrorKind::Protocol),
        (other(), Rule::on("GET", "*").nth(2), ErrorKind::Protocol),
        (Fault::repeat(), Rule::on("GET", "*"), ErrorKind::Protocol),
    ] {
        proxy.clear();
        proxy.inject(rule, fault.clone());
        let error = list(&bed, &proxy).await.map(|rows| rows.len()).expect_err("no whole listing");
        assert_eq!(error.kind(), kind, "{fault:?}: {error:?}");
    }
}
