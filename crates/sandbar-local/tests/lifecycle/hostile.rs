//! The agent is not ours any more. It can lie and be silent; it can't keep the shim, nor a caller longer than the caller said.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sandbar_core::{
    Command, CreateOptions, ErrorKind, KillCause, MainCommand, Resources, RunOptions, Sandbox, SandboxExt,
    SandboxProvider, State,
};

use crate::support::fake::{Fake, HEAD, chunk, flood, lingering, send};
use crate::support::{Bed, create, eventually};

/// Far more than the shim takes to answer, far less than what a lingering close would.
const PROMPT: Duration = Duration::from_secs(8);

/// Asserts that the shim serves.
async fn shim_serves(sandbox: &dyn Sandbox) {
    let begun = Instant::now();
    sandbox.require_metrics().expect("metrics").sample().await.expect("a sample");
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn connections_that_linger_do_not_keep_the_shim() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let sandbox = provider.create(CreateOptions::new().with_ports(vec![8080])).await.expect("a sandbox");
    for count in [1_usize, 2, 3, 20] {
        let fake = Fake::ctl(&bed.folder(sandbox.id()), br#"{"ok":true}"#, move || {
            (0..count).map(|_| lingering()).collect()
        });
        // Dropped at once where it is a connection at all.
        let dialled = sandbox.require_ports().expect("ports").dial(8080).await;
        assert_eq!(dialled.is_ok(), count == 1, "{count}");
        drop(dialled);
        shim_serves(&*sandbox).await;
        drop(fake);
    }
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after the lingering ones").await;
}

#[tokio::test]
async fn more_descriptors_than_expected_do_not_keep_the_shim() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let null = || OwnedFd::from(std::fs::File::open("/dev/null").expect("a file"));
    let fake = Fake::ctl(&bed.folder(sandbox.id()), br#"{"ok":false}"#, move || {
        std::iter::once(lingering()).chain((0..251).map(|_| null())).chain([lingering()]).collect()
    });
    for _ in 0..3 {
        sandbox.require_ports().expect("ports").dial(8080).await.expect_err("no connection");
    }
    shim_serves(&*sandbox).await;
    drop(fake);
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after them").await;
}

#[tokio::test]
async fn an_agent_that_only_says_that_it_killed_is_ended_itself() {
    let Some(bed) = Bed::new() else { return };
    let small = Resources::default().with_disk_bytes(16 << 20);
    let sandbox = bed.provider().create(CreateOptions::new().with_resources(small)).await.expect("a sandbox");
    let fake = Fake::ctl(&bed.folder(sandbox.id()), br#"{"ok":true}"#, Vec::new);
    let script = "for i in 1 2 3; do head -c 12000000 /dev/zero > f$i; done; sleep 60";
    let error = sandbox.commands().run(&Command::shell(script)).await.expect_err("it ends with its agent");
    assert!(matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound), "{error:?}");
    eventually("it is stopped", async || {
        sandbox.record().await.is_ok_and(|record| {
            record.state == State::Stopped
                && record.last_kill.is_some_and(|kill| kill.cause == KillCause::Disk)
        })
    })
    .await;
    drop(fake);
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after the liar").await;
}

#[tokio::test]
async fn a_start_that_never_comes_is_a_timeout() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let fake = Fake::agent(&bed.folder(sandbox.id()), |mut stream, over| {
        let _ = stream.write_all(HEAD);
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            std::thread::park_timeout(Duration::from_millis(20));
        }
    });
    let begun = Instant::now();
    let options = RunOptions::default().with_timeout(Duration::from_secs(1));
    let error = sandbox.commands().run_opts(&Command::new("true"), options).await.expect_err("no start");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
    assert_eq!(error.partial().and_then(|partial| partial.ended), None, "nobody knows");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    drop(fake);
    sandbox.destroy().await.expect("destroyed");
}

#[tokio::test]
async fn an_agent_that_never_stops_talking_does_not_outlast_the_timeout() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let fake = Fake::agent(&bed.folder(sandbox.id()), |mut stream, over| {
        let _ = stream.write_all(HEAD);
        let _ = stream.write_all(&chunk(r#"{"event":{"start":{"pid":7}}}"#));
        flood(&stream, &chunk(r#"{"event":{"keepalive":{}}}"#).repeat(500), over);
    });
    let begun = Instant::now();
    let options = RunOptions::default().with_timeout(Duration::from_millis(500));
    let error = sandbox.commands().run_opts(&Command::new("true"), options).await.expect_err("no end");
    // The agent has some time to end it; then the client does.
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    // On a busy machine the liar's own end may come first; then the state is unknown, which is as true.
    assert!(matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable), "{error:?}");
    drop(fake);
    sandbox.destroy().await.expect("destroyed");
}

#[tokio::test]
async fn descriptors_on_the_guest_protocol_end_the_call() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let fake = Fake::agent(&bed.folder(sandbox.id()), |stream, _| send(&stream, HEAD, &[lingering()]));
    let begun = Instant::now();
    let options = RunOptions::default().with_timeout(Duration::from_secs(20));
    sandbox.commands().run_opts(&Command::new("true"), options).await.expect_err("not of the protocol");
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    drop(fake);
    sandbox.destroy().await.expect("destroyed");
}

/// Each state that it tells is a file that its shim writes, outside of the sandbox' limits.
#[tokio::test]
async fn an_agent_that_tells_another_state_each_time_is_heard_by_the_pace() {
    /// What may come at once, and then in a second, with room for what the test itself asks.
    const AT_ONCE: u64 = 40;
    const A_SECOND: u64 = 8;
    const WATCHED: Duration = Duration::from_secs(4);
    let Some(bed) = Bed::new() else { return };
    // It says something all the time, so that the shim does not wait for the true agent when another takes its place.
    let main = MainCommand::new(Command::shell("while sleep 0.1; do echo; done"));
    let sandbox = bed.provider().create(CreateOptions::new().with_main(main)).await.expect("a sandbox");
    let (asked, is_calm) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, calm) = (Arc::clone(&asked), Arc::clone(&is_calm));
    let fake = Fake::ctl_saying(&bed.folder(sandbox.id()), move || {
        let last = count.load(Ordering::Relaxed);
        let pid = if calm.load(Ordering::Relaxed) { last } else { count.fetch_add(1, Ordering::Relaxed) + 1 };
        let answer = format!(
            r#"{{"ok":true,"version":{},"state":"running","pid":{pid},"started_ms":1,"exit":null,"next_ms":null,
            "problem":null,"start_error":null}}"#,
            pid + 1000
        );
        (answer.into_bytes(), Vec::new())
    });
    eventually("it is asked", async || asked.load(Ordering::Relaxed) > 0).await;
    let begun = Instant::now();
    eventually("a while passed", async || begun.elapsed() > WATCHED).await;
    let heard = asked.load(Ordering::Relaxed);
    let most = AT_ONCE + A_SECOND * begun.elapsed().as_secs();
    assert!(heard > AT_ONCE / 4 && heard <= most, "{heard} states, at most {most}");
    is_calm.store(true, Ordering::Relaxed);
    // The last one counts, however many came before it.
    eventually("the last state is known", async || {
        let record = sandbox.record().await.expect("a record");
        record.main.and_then(|main| main.pid).map(u64::from) == Some(asked.load(Ordering::Relaxed))
    })
    .await;
    drop(fake);
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after the states").await;
}
