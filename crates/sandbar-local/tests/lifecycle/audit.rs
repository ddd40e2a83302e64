//! What the audit record is told with nobody looking: ends, kills by limits, take-overs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::TryStreamExt;
use sandbar_core::{
    Command, CreateOptions, EnvVars, Follow, Lifetime, LogEvent, LogOptions, MainCommand, ProviderExt,
    Resources, RunOptions, SandboxExt, SandboxProvider,
};
use sandbar_local::{LocalProvider, Spare};
use sandbar_observe::{
    AuditConfig, AuditLog, AuditReader, Event, Observation, Observed, Outcome, Phase, Role,
};

use crate::spare::prepared;
use crate::support::{Bed, agent_pid, create, eventually, is_alive, kill, shim_pid};

fn file(bed: &Bed) -> PathBuf {
    bed.scratch().join("audit.jsonl")
}

/// A provider whose sandboxes have their ends told.
fn told(bed: &Bed) -> LocalProvider {
    LocalProvider::open(bed.config().with_audit(AuditConfig::new(file(bed)))).expect("the provider opens")
}

fn events(file: &Path) -> Vec<Event> {
    let Ok(mut reader) = AuditReader::open(file) else { return Vec::new() };
    let mut events = Vec::new();
    while let Some(line) = reader.next_line().expect("a line") {
        events.push(line.event().unwrap_or_else(|| panic!("{line:?}")).clone());
    }
    events
}

/// Waits for the end in the record, and answers it with its beginning.
async fn end(bed: &Bed) -> (Event, Event) {
    eventually("the end is recorded", async || {
        events(&file(bed)).iter().any(|event| event.op == "ended" && event.phase == Phase::End)
    })
    .await;
    let mut ends = events(&file(bed)).into_iter().filter(|event| event.op == "ended");
    (ends.next().expect("a beginning"), ends.next().expect("an end"))
}

#[tokio::test]
async fn a_deadline_that_nobody_waits_for_is_recorded() {
    let Some(bed) = Bed::new() else { return };
    let options = CreateOptions::new().with_deadline(Duration::from_millis(300));
    let sandbox = told(&bed).create(options).await.expect("a sandbox");
    let shim = shim_pid(&bed, sandbox.id()).expect("a shim");
    let (begin, end) = end(&bed).await;
    assert_eq!((begin.phase, end.phase, end.outcome), (Phase::Begin, Phase::End, Some(Outcome::Ok)));
    assert_eq!((end.actor.role, end.actor.pid), (Role::Guard, u32::try_from(shim).expect("a number")));
    assert_eq!((end.sandbox.as_ref(), end.backend.as_ref()), (Some(sandbox.id()), "local"));
    assert_eq!((&end.detail["reason"], &end.detail["left"]), (&"deadline".into(), &"nothing".into()));
    bed.assert_empty("after its deadline").await;
}

#[tokio::test]
async fn a_deadline_that_passed_without_a_shim_is_recorded_by_the_next_command() {
    let Some(bed) = Bed::new() else { return };
    let options = CreateOptions::new().with_deadline(Duration::from_secs(1));
    let sandbox = told(&bed).create(options).await.expect("a sandbox");
    let agent = agent_pid(&bed, sandbox.id());
    kill(shim_pid(&bed, sandbox.id()).expect("a shim"));
    eventually("the agent has ended itself", async || !is_alive(agent)).await;
    // One that was not told to record anything: what counts is what the sandbox' maker wanted.
    create(&bed.provider()).await.destroy().await.expect("destroyed");
    let (_, end) = end(&bed).await;
    assert_eq!((end.sandbox.as_ref(), &end.detail["reason"]), (Some(sandbox.id()), &"deadline".into()));
    assert_eq!((end.actor.role, end.actor.pid), (Role::Caller, std::process::id()));
    bed.assert_empty("after its deadline").await;
}

#[tokio::test]
async fn a_shim_that_takes_over_goes_on_recording() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = told(&bed).create(CreateOptions::new()).await.expect("a sandbox");
    kill(shim_pid(&bed, sandbox.id()).expect("a shim"));
    // Another process, which knows nothing of a record.
    let other = bed.provider().require(sandbox.id()).await.expect("a handle");
    let published = sandbox_port(&*other).await;
    assert!(published > 0);
    let shim = shim_pid(&bed, sandbox.id()).expect("a shim");
    let adopted = events(&file(&bed)).pop().expect("an event");
    assert_eq!((adopted.op.as_ref(), adopted.actor.role), ("adopt", Role::Guard));
    assert_eq!(adopted.actor.pid, u32::try_from(shim).expect("a number"));
    kill(agent_pid(&bed, sandbox.id()));
    let (_, end) = end(&bed).await;
    assert_eq!((&end.detail["reason"], &end.detail["left"]), (&"died".into(), &"files".into()));
    assert!(bed.provider().destroy(sandbox.id()).await.expect("destroyed"));
    let last = events(&file(&bed)).pop().expect("an event");
    assert_eq!((last.op.as_ref(), &last.detail["reason"]), ("ended", &"destroyed".into()));
    bed.assert_empty("after it").await;
}

/// Something that takes a shim.
async fn sandbox_port(sandbox: &dyn sandbar_core::Sandbox) -> u16 {
    sandbox.require_ports().expect("ports").publish(8080).await.expect("published").port
}

#[tokio::test]
async fn an_owner_that_is_gone_and_a_limit_that_ends_something_are_recorded() {
    let Some(bed) = Bed::new() else { return };
    let provider = told(&bed);
    let small = Resources::default().with_memory_bytes(96 << 20);
    let options = CreateOptions::new().with_lifetime(Lifetime::Owned).with_resources(small);
    let sandbox = provider.create(options).await.expect("a sandbox");
    let bomb = Command::shell("exec tail /dev/zero");
    let options = RunOptions::default().with_timeout(Duration::from_secs(60));
    sandbox.commands().run_opts(&bomb, options).await.expect("an output");
    eventually("the kill is recorded", async || events(&file(&bed)).iter().any(|event| event.op == "limit"))
        .await;
    let limit = events(&file(&bed)).pop().expect("an event");
    assert_eq!((limit.phase, &limit.detail["cause"]), (Phase::Note, &"oom".into()));
    drop((sandbox, provider));
    let (_, end) = end(&bed).await;
    assert_eq!((&end.detail["reason"], end.outcome), (&"owner_gone".into(), Some(Outcome::Ok)));
    bed.assert_empty("after its owner").await;
}

#[tokio::test]
async fn a_sandbox_that_was_prepared_in_advance_is_told_of_as_its_creation_asks() {
    let Some(bed) = Bed::new() else { return };
    let config = bed.config().with_spare(Spare::Kept).with_audit(AuditConfig::new(file(&bed)));
    let local = LocalProvider::open(config).expect("the provider opens");
    let (spare, _) = prepared(&bed, &local).await;
    std::fs::remove_file(file(&bed)).expect("what is told of the first two");
    let log = AuditLog::open(AuditConfig::new(file(&bed))).expect("a record");
    let provider = Observed::new(local, Observation::new().with_audit(log).with_actor("late"));
    let main = MainCommand::new(Command::shell("echo $TRACEPARENT"));
    let sandbox = provider.create(CreateOptions::new().with_main(main)).await.expect("a sandbox");
    assert_eq!(sandbox.id(), &spare);
    let follow = LogOptions { follow: Follow::Yes, ..LogOptions::default() };
    let logs = sandbox.require_main_command().expect("the part").logs(follow).await.expect("logs");
    let said: Vec<LogEvent> = logs.try_collect().await.expect("all of it");
    let [LogEvent::Output(said)] = said.as_slice() else { panic!("{said:?}") };
    kill(agent_pid(&bed, sandbox.id()));
    let (_, end) = end(&bed).await;
    assert_eq!((end.sandbox.as_ref(), end.actor.name.as_deref()), (Some(&spare), Some("late")));
    let create = events(&file(&bed)).into_iter().find(|event| event.op == "create").expect("one");
    assert_eq!((end.trace, end.parent), (create.trace, create.span));
    // The main command, too, belongs to the creation.
    let (trace, span) = (create.trace.expect("a trace"), create.span.expect("a span"));
    assert_eq!(said.bytes, format!("00-{trace}-{span}-01\n"));
    sandbox.destroy().await.expect("destroyed");
    drop((sandbox, provider));
    bed.assert_empty("after it").await;
}

#[tokio::test]
async fn a_record_that_can_not_be_written_keeps_no_sandbox_alive() {
    let Some(bed) = Bed::new() else { return };
    let options = CreateOptions::new().with_deadline(Duration::from_millis(500));
    let path = bed.scratch().join("folder/audit.jsonl");
    let config = bed.config().with_audit(AuditConfig::new(path));
    std::fs::write(bed.scratch().join("folder"), "in the way").expect("written");
    let provider = LocalProvider::open(config).expect("the provider opens");
    let sandbox = provider.create(options).await.expect("a sandbox");
    eventually("it is gone", async || provider.describe(sandbox.id()).await.expect("an answer").is_none())
        .await;
    bed.assert_empty("after its deadline").await;
}

#[tokio::test]
async fn the_end_belongs_to_the_trace_and_the_actor_of_the_creation_and_no_secret_is_told() {
    let Some(bed) = Bed::new() else { return };
    let log = AuditLog::open(AuditConfig::new(file(&bed))).expect("a record");
    let observation = Observation::new().with_audit(log).with_actor("tester");
    let provider = Observed::new(told(&bed), observation);
    let secret = |name: &str| EnvVars::new().with(name, "canary").expect("a variable");
    let options = CreateOptions::new()
        .with_deadline(Duration::from_secs(5))
        .with_env(secret("STORED"))
        .with_self_delivered_env(secret("OWN"));
    let sandbox = provider.create(options).await.expect("a sandbox");
    let given = RunOptions::default().with_env(secret("GIVEN")).with_stdin("canary");
    let show = Command::shell("cat >/dev/null; echo $TRACEPARENT");
    let output = sandbox.commands().run_opts(&show, given).await.expect("a run");
    let seen = events(&file(&bed));
    let run = seen.iter().find(|event| event.op == "run").expect("one");
    let traceparent = format!("00-{}-{}-01\n", run.trace.expect("a trace"), run.span.expect("a span"));
    assert_eq!(output.stdout_lossy(), traceparent);
    // By the deadline, which is made to be now.
    let now = sandbar_core::Deadline::In(Duration::ZERO);
    sandbox.set_deadline(now, sandbar_core::DeadlineMode::Set).await.expect("set");
    let (_, end) = end(&bed).await;
    let create = events(&file(&bed)).into_iter().find(|event| event.op == "create").expect("one");
    assert_eq!((end.trace, end.parent), (create.trace, create.span));
    assert_eq!(end.actor.name.as_deref(), Some("tester"));
    let text = std::fs::read_to_string(file(&bed)).expect("text");
    assert!(!text.contains("canary"), "{text}");
    bed.assert_empty("after its deadline").await;
}
