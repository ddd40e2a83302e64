//! A shim that does not act any more is replaced by whoever needs it gone.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sandbar_core::{Command, CreateOptions, ErrorKind, ProviderExt, Query, SandboxId, SandboxProvider};

use crate::support::{Bed, create, eventually_within, is_alive, shim_pid};

/// Stops the shim of a sandbox, as something that blocks it would.
fn freeze(bed: &Bed, id: &SandboxId) -> i32 {
    let shim = shim_pid(bed, id).expect("a shim");
    kill_process(Pid::from_raw(shim).expect("a number"), Signal::STOP).expect("stopped");
    shim
}

#[tokio::test]
async fn a_frozen_shim_does_not_keep_its_sandbox() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let sandbox = create(&provider).await;
    let shim = freeze(&bed, sandbox.id());
    let begun = Instant::now();
    assert!(sandbox.destroy().await.expect("destroyed"));
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    assert!(!is_alive(shim));
    assert!(!provider.destroy(sandbox.id()).await.expect("nothing more to destroy"));
    bed.assert_empty("after the frozen one").await;
}

#[tokio::test]
async fn two_that_destroy_a_frozen_one_agree() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    freeze(&bed, sandbox.id());
    let (first, second) = (bed.provider(), bed.provider());
    let (one, other) = tokio::join!(first.destroy(sandbox.id()), second.destroy(sandbox.id()));
    assert!(one.expect("an answer") | other.expect("an answer"));
    bed.assert_empty("after both").await;
}

#[tokio::test]
async fn a_frozen_shim_does_not_keep_a_deadline() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let soon = || CreateOptions::new().with_deadline(Duration::from_millis(600));
    let (swept, used) =
        (provider.create(soon()).await.expect("a sandbox"), provider.create(soon()).await.expect("another"));
    let shims = [freeze(&bed, swept.id()), freeze(&bed, used.id())];
    eventually_within(Duration::from_secs(20), "a listing says why it is still there", async || {
        let listed = provider.list_all(Query::new()).await.expect("a listing");
        listed.len() == 2
            && listed.iter().all(|record| {
                record.reason.as_deref().is_some_and(|reason| reason.contains("deadline passed"))
            })
    })
    .await;
    // A command that needs it ends it, and so does one that only tidies up.
    let begun = Instant::now();
    let error = used.commands().run(&Command::new("true")).await.expect_err("its time is over");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    create(&provider).await.destroy().await.expect("destroyed");
    assert!(shims.iter().all(|shim| !is_alive(*shim)));
    bed.assert_empty("after their deadline").await;
}
