//! READY: a creation waits until the command of its template succeeds, and no longer than it makes sense to wait.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use sandbar_core::{
    BuildLog, BuildSpec, BuildStep, Command, CreateOptions, Error, ErrorKind, ForkOptions, MainCommand,
    ProviderExt, Sandbox, SandboxExt, SandboxProvider, State, TemplateId,
};
use sandbar_local::{Defaults, LocalProvider};

use crate::support::{Bed, agent_pid, eventually, kill};

fn id() -> TemplateId {
    TemplateId::new("ready").expect("an id")
}

fn from_template() -> CreateOptions {
    CreateOptions::new().with_template(id())
}

/// A template with these two commands.
async fn template(bed: &Bed, start: Option<&str>, ready: &str) {
    let mut steps = vec![BuildStep::Ready(Command::shell(ready))];
    steps.extend(start.map(|start| BuildStep::Start(Command::shell(start))));
    let provider = bed.provider();
    let builds = provider.require_builds().expect("builds");
    let mut words = builds.build(BuildSpec::new(id(), steps)).await.expect("a build");
    while let Some(word) = words.next().await {
        if let BuildLog::Done(_) = word.expect("a word") {
            return;
        }
    }
    panic!("the build ended without a last word");
}

/// One that waits for this long.
fn patient(bed: &Bed, within: Duration) -> LocalProvider {
    let defaults = Defaults { ready_within: within, ..Defaults::default() };
    LocalProvider::open(bed.config().with_defaults(defaults)).expect("the provider opens")
}

async fn succeeds(sandbox: &dyn Sandbox, script: &str) -> bool {
    sandbox.commands().run(&Command::shell(script)).await.expect("it ran").status.is_success()
}

async fn refused(provider: &LocalProvider) -> Error {
    match provider.create(from_template()).await {
        Ok(sandbox) => panic!("made: {}", sandbox.id()),
        Err(error) => error,
    }
}

/// The state on disk of the only sandbox there is.
fn only(bed: &Bed) -> Option<(sandbar_core::SandboxId, serde_json::Value)> {
    let entry = std::fs::read_dir(bed.home().join("sandboxes")).ok()?.find_map(Result::ok)?;
    let id = sandbar_core::SandboxId::new(entry.file_name().to_string_lossy()).ok()?;
    let record = std::fs::read(entry.path().join("record.json")).ok()?;
    Some((id, serde_json::from_slice(&record).ok()?))
}

#[tokio::test]
async fn a_creation_waits_until_it_is_ready_and_so_does_another_start() {
    let Some(bed) = Bed::new() else { return };
    // What is in memory is gone with the processes.
    template(&bed, Some("sleep 1; touch /dev/shm/up; exec sleep 1000"), "test -e /dev/shm/up").await;
    let provider = bed.provider();
    let sandbox = provider.create(from_template()).await.expect("a sandbox");
    assert!(succeeds(&*sandbox, "test -e /dev/shm/up").await);
    // A copy has no main command, and waits for none.
    let (copy, _) =
        sandbox.require_forking().expect("forks").fork(ForkOptions::default()).await.expect("a copy");
    copy.destroy().await.expect("destroyed");
    // What the template says is about its own main command.
    let other = MainCommand::new(Command::shell("exec sleep 1000"));
    let other = provider.create(from_template().with_main(other)).await.expect("a sandbox");
    assert!(!succeeds(&*other, "test -e /dev/shm/up").await);
    other.destroy().await.expect("destroyed");

    kill(agent_pid(&bed, sandbox.id()));
    eventually("it is stopped", async || {
        sandbox.record().await.is_ok_and(|record| record.state == State::Stopped)
    })
    .await;
    let outcome = sandbox.require_pausing().expect("pausing").resume().await.expect("started again");
    assert!(!outcome.processes_preserved);
    assert!(succeeds(&*sandbox, "test -e /dev/shm/up").await);
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after all of them").await;
}

#[tokio::test]
async fn one_that_never_is_tells_why_and_leaves_nothing() {
    let Some(bed) = Bed::new() else { return };
    template(&bed, Some("echo it starts; exec sleep 1000"), "echo not yet; exit 7").await;
    let error = refused(&patient(&bed, Duration::from_millis(1500))).await;
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    // The last attempt may be under way when the time is over.
    assert!(error.message().contains("code 7") || error.message().contains("still running"), "{error}");
    for part in ["`echo not yet; exit 7`", "1.5 s", "said: not yet", "it starts"] {
        assert!(error.message().contains(part), "{part}: {error}");
    }
    bed.assert_empty("after one that was never ready").await;

    // Without a main command there is something to wait for, too; an attempt that does not end is ended.
    template(&bed, None, "exec sleep 1000").await;
    let error = refused(&patient(&bed, Duration::from_millis(500))).await;
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.message().contains("still running"), "{error}");
    bed.assert_empty("after one whose attempt did not end").await;
}

#[tokio::test]
async fn a_main_command_that_failed_is_not_waited_for() {
    let Some(bed) = Bed::new() else { return };
    template(&bed, Some("echo no such module >&2; exit 3"), "false").await;
    let error = refused(&bed.provider()).await;
    assert_eq!(error.kind(), ErrorKind::Unexpected, "{error}");
    for part in ["code 3", "`false`", "no such module"] {
        assert!(error.message().contains(part), "{part}: {error}");
    }
    bed.assert_empty("after a main command that failed").await;
    // One that ended well may have left behind what is waited for.
    template(&bed, Some("(sleep 0.5; touch /tmp/up) </dev/null >/dev/null 2>&1 &"), "test -e /tmp/up").await;
    let sandbox = bed.provider().create(from_template()).await.expect("a sandbox");
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after one that left something behind").await;
}

#[tokio::test]
async fn who_gives_up_or_destroys_it_meanwhile_leaves_nothing() {
    let Some(bed) = Bed::new() else { return };
    template(&bed, Some("exec sleep 1000"), "false").await;
    let begin = |provider: LocalProvider| {
        tokio::spawn(
            async move { provider.create(from_template()).await.map(|sandbox| Arc::clone(&sandbox)) },
        )
    };
    let waits = async || {
        eventually("it waits", async || {
            only(&bed).is_some_and(|(_, record)| record["main"]["state"] == "running")
        })
        .await;
        let (id, record) = only(&bed).expect("a record");
        assert_eq!(record["state"], "creating", "{record}");
        id
    };
    let creation = begin(bed.provider());
    waits().await;
    creation.abort();
    assert!(creation.await.is_err_and(|error| error.is_cancelled()));
    eventually("its shim takes it back", async || only(&bed).is_none()).await;
    bed.assert_empty("after a caller that gave up").await;

    let creation = begin(bed.provider());
    let id = waits().await;
    assert!(bed.provider().destroy(&id).await.expect("destroyed"));
    let error = creation.await.expect("no panic").map(|sandbox| sandbox.id().clone()).unwrap_err();
    assert!(error.message().contains("destroyed"), "{error}");
    bed.assert_empty("after one that was destroyed").await;
}
