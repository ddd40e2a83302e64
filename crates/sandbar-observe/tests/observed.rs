//! What a provider that is told of says of operations, and what it never says.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use sandbar_core::{
    Capabilities, Command, CreateOptions, Deadline, DeadlineMode, EnvVars, ErrorKind, Files, FilesExt,
    Follow, GetOptions, GuestPath, LogOptions, MainCommand, MemoryProvider, ProjectId, ProviderExt, Query,
    ReadOptions, RestartPolicy, Result, Retry, RunOptions, Sandbox, SandboxExt, SandboxId, SandboxProvider,
    SandboxRecord, Signal, SignalReach, SpawnOptions, StdinMode,
};
use sandbar_observe::{
    Arguments, AuditConfig, AuditLog, AuditMode, AuditReader, Event, Observation, Observed, Outcome, Phase,
    TraceContext,
};
use serde_json::json;

struct Bed {
    folder: tempfile::TempDir,
}

impl Bed {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn inner(&self) -> PathBuf {
        self.folder.path().join("inner")
    }

    fn file(&self) -> PathBuf {
        self.inner().join("audit.jsonl")
    }

    fn log(&self, mode: AuditMode) -> AuditLog {
        AuditLog::open(AuditConfig::new(self.file()).with_mode(mode)).expect("a record")
    }

    fn observation(&self) -> Observation {
        Observation::new().with_audit(self.log(AuditMode::Required)).with_actor("tester")
    }

    fn provider(&self) -> Observed {
        Observed::new(MemoryProvider::new(), self.observation())
    }

    fn events(&self) -> Vec<Event> {
        events(&self.file())
    }

    /// Puts something in the way of the record.
    fn block(&self) {
        block(&self.inner());
    }

    fn unblock(&self) {
        std::fs::remove_file(self.inner()).expect("removed");
        std::fs::rename(self.folder.path().join("aside"), self.inner()).expect("moved");
    }
}

fn block(folder: &Path) {
    std::fs::rename(folder, folder.with_file_name("aside")).expect("moved");
    std::fs::write(folder, "in the way").expect("written");
}

fn events(file: &Path) -> Vec<Event> {
    let mut reader = AuditReader::open(file).expect("a record");
    let mut events = Vec::new();
    while let Some(line) = reader.next_line().expect("a line") {
        events.push(line.event().unwrap_or_else(|| panic!("{line:?}")).clone());
    }
    events
}

fn ends(events: &[Event]) -> Vec<(String, Outcome)> {
    let ends = events.iter().filter(|event| event.phase == Phase::End);
    ends.map(|event| (event.op.to_string(), event.outcome.expect("an outcome"))).collect()
}

fn guest(path: &str) -> GuestPath {
    GuestPath::new(path).expect("a path")
}

#[tokio::test]
async fn every_operation_begins_and_ends_in_the_record() {
    let bed = Bed::new();
    let provider = bed.provider();
    let project = ProjectId::new("p1").expect("a project");
    let sandbox =
        provider.create(CreateOptions::new().with_project(project.clone())).await.expect("a sandbox");
    let id = sandbox.id().clone();
    let output = sandbox.commands().run(&Command::shell("exit 3")).await.expect("a run");
    assert_eq!(output.status.to_code(), 3);
    sandbox.files().write(&guest("/tmp/file"), "12345".into()).await.expect("written");
    assert_eq!(sandbox.files().read(&guest("/tmp/file")).await.expect("read"), "12345");
    sandbox.files().list(&guest("/tmp")).await.expect("listed");
    sandbox.files().rename(&guest("/tmp/file"), &guest("/tmp/new")).await.expect("renamed");
    assert!(sandbox.files().remove(&guest("/tmp/new")).await.expect("removed"));
    sandbox.files().list(&guest("/no/such/folder")).await.expect_err("nothing there");
    sandbox.set_deadline(Deadline::In(Duration::from_secs(60)), DeadlineMode::Set).await.expect("set");
    sandbox.require_pausing().expect("pausing").hibernate().await.expect("asleep");
    sandbox.require_pausing().expect("pausing").resume().await.expect("awake");
    // Another handle, of which the project is looked up.
    assert!(provider.require(&id).await.expect("a handle").destroy().await.expect("destroyed"));
    assert!(!provider.destroy(&id).await.expect("an answer"));

    let events = bed.events();
    let expected = [
        ("create", Outcome::Ok),
        ("run", Outcome::Ok),
        ("write", Outcome::Ok),
        ("read", Outcome::Ok),
        ("list", Outcome::Ok),
        ("rename", Outcome::Ok),
        ("remove", Outcome::Ok),
        ("list", Outcome::Error),
        ("set_deadline", Outcome::Ok),
        ("hibernate", Outcome::Ok),
        ("resume", Outcome::Ok),
        ("destroy", Outcome::Ok),
        ("destroy", Outcome::Ok),
    ];
    assert_eq!(ends(&events), expected.map(|(op, outcome)| (op.to_owned(), outcome)));
    for pair in events.chunks_exact(2) {
        let [begin, end] = pair else { unreachable!("of two") };
        assert_eq!((begin.phase, end.phase, &begin.op), (Phase::Begin, Phase::End, &end.op));
        assert_eq!((begin.span, begin.trace), (end.span, end.trace));
        assert!(begin.span.is_some() && begin.outcome.is_none() && end.duration.expect("a duration") >= 0.0);
        assert_eq!(end.sandbox.as_ref(), Some(&id));
        assert_eq!((end.backend.as_ref(), end.v), ("memory", 1));
        assert_eq!((end.actor.name.as_deref(), end.actor.pid), (Some("tester"), std::process::id()));
    }
    let of = |op: &str| events.iter().rev().find(|event| event.op == op).expect("an event");
    assert_eq!(of("run").detail["code"], 3);
    assert_eq!(of("run").project, Some(project.clone()));
    assert_eq!(events.iter().find(|event| event.op == "destroy").expect("one").project, Some(project));
    assert_eq!((&of("write").detail["bytes"], &of("read").detail["bytes"]), (&json!(5), &json!(5)));
    assert_eq!(of("list").error.as_deref(), Some("not_found"));
    assert_eq!(of("destroy").detail["existed"], false);
}

#[tokio::test]
async fn no_secret_and_no_content_is_in_the_record() {
    let bed = Bed::new();
    let provider = bed.provider();
    let secret = |name: &str| EnvVars::new().with(name, "canary-value").expect("a variable");
    let options =
        CreateOptions::new().with_env(secret("STORED")).with_self_delivered_env(secret("OWN_CANARY"));
    let sandbox = provider.create(options).await.expect("a sandbox");
    let options = RunOptions::default().with_env(secret("GIVEN")).with_stdin("canary-stdin");
    sandbox.commands().run_opts(&Command::new("cat"), options).await.expect("a run");
    sandbox.files().write(&guest("/tmp/file"), "canary-content".into()).await.expect("written");
    sandbox.files().read(&guest("/tmp/file")).await.expect("read");
    let options = SpawnOptions::new().with_env(secret("SPAWNED")).with_stdin(StdinMode::Open);
    let process = sandbox.require_processes().expect("processes").spawn(&Command::new("cat"), options).await;
    let process = process.expect("a process");
    process.control.write("canary-input".into()).await.expect("written");
    process.control.close_stdin().await.expect("closed");
    assert!(process.wait().await.expect("an end").status.is_success());
    let text = std::fs::read_to_string(bed.file()).expect("text");
    assert!(!text.to_lowercase().contains("canary"), "{text}");
    // The names of those that are stored or given are told.
    for name in ["STORED", "GIVEN", "SPAWNED"] {
        assert!(text.contains(name), "{name}");
    }
}

#[tokio::test]
async fn a_hostile_name_makes_one_line() {
    let bed = Bed::new();
    let sandbox = bed.provider().create(CreateOptions::new()).await.expect("a sandbox");
    let name = "/tmp/a\n{\"v\":1}\r\x1b]0;x\x07\"\\\u{202e}";
    sandbox.files().write(&guest(name), "x".into()).await.expect("written");
    let bytes = GuestPath::new(b"/tmp/\xff\xfe").expect("a path");
    sandbox.files().make_dir(&bytes).await.expect("made");
    let events = bed.events();
    assert_eq!(events.iter().find(|event| event.op == "write").expect("one").detail["path"], name);
    let made = events.iter().find(|event| event.op == "make_dir").expect("one");
    assert_eq!(made.detail["path"], json!({"base64": "L3RtcC///g==", "bytes": 7, "cut": false}));
    let text = std::fs::read_to_string(bed.file()).expect("text");
    assert_eq!(text.lines().count(), 6);
    assert!(!text.contains(['\x1b', '\x07', '\u{202e}', '\r']));
}

#[tokio::test]
async fn arguments_are_told_unless_that_is_not_wanted() {
    let bed = Bed::new();
    let observation = bed.observation().with_arguments(Arguments::ProgramOnly);
    let provider = Observed::new(MemoryProvider::new(), observation);
    let sandbox = provider.create(CreateOptions::new()).await.expect("a sandbox");
    sandbox.commands().run(&Command::new("echo").arg("canary")).await.expect("a run");
    let events = bed.events();
    let run = events.iter().find(|event| event.op == "run").expect("one");
    assert_eq!((&run.detail["argv"], &run.detail["argc"]), (&json!(["echo"]), &json!(2)));
    assert!(!std::fs::read_to_string(bed.file()).expect("text").contains("canary"));
}

#[tokio::test]
async fn processes_are_told_to_their_end_and_what_is_given_up_is_unknown() {
    let bed = Bed::new();
    let sandbox = bed.provider().create(CreateOptions::new()).await.expect("a sandbox");
    let processes = sandbox.require_processes().expect("processes");
    let process =
        processes.spawn(&Command::new("sleep").arg("60"), SpawnOptions::new()).await.expect("spawned");
    let (pid, control) = (process.pid, Arc::clone(&process.control));
    assert!(control.signal(Signal::KILL).await.expect("an answer"));
    process.wait().await.expect("an end");
    let dropped =
        processes.spawn(&Command::new("sleep").arg("60"), SpawnOptions::new()).await.expect("spawned");
    drop(dropped);
    let slow = Command::new("sleep").arg("60");
    tokio::time::timeout(Duration::from_millis(20), sandbox.commands().run(&slow))
        .await
        .expect_err("too slow");
    sandbox.files().write(&guest("/tmp/file"), vec![b'x'; 100].into()).await.expect("written");
    let mut read =
        sandbox.files().read_opts(&guest("/tmp/file"), ReadOptions::default()).await.expect("read");
    let first = read.body.next().await.expect("some").expect("bytes").len();
    drop(read);
    let events = bed.events();
    let ends: Vec<_> = events.iter().filter(|event| event.phase == Phase::End).collect();
    let spawns: Vec<_> = ends.iter().filter(|event| event.op == "spawn").collect();
    assert_eq!((spawns[0].outcome, &spawns[0].detail["signal"]), (Some(Outcome::Ok), &json!(9)));
    assert_eq!(spawns[0].detail["pid"], pid);
    assert_eq!((spawns[1].outcome, spawns[1].detail.get("status")), (Some(Outcome::Unknown), None));
    let run = ends.iter().find(|event| event.op == "run").expect("one");
    assert_eq!(run.outcome, Some(Outcome::Unknown));
    let read = ends.iter().find(|event| event.op == "read").expect("one");
    assert_eq!((read.outcome, &read.detail["bytes"]), (Some(Outcome::Unknown), &json!(first)));
    assert!(ends.iter().any(|event| event.op == "signal" && event.detail["signal"] == 9));
}

#[tokio::test]
async fn a_main_command_and_signals_to_any_process_are_told() {
    let bed = Bed::new();
    let env = EnvVars::new().with("TOKEN", "canary").expect("a variable");
    let main = MainCommand::new(Command::shell("echo said"))
        .with_env(env)
        .with_cwd(guest("/tmp"))
        .with_restart(RestartPolicy::No);
    let provider = bed.provider();
    let sandbox = provider.create(CreateOptions::new().with_main(main)).await.expect("a sandbox");
    let part = sandbox.require_main_command().expect("the part");
    assert!(part.status().await.expect("an answer").is_some());
    let following = LogOptions { follow: Follow::Yes, tail: Some(7), ..LogOptions::default() };
    part.logs(following).await.expect("logs").try_collect::<Vec<_>>().await.expect("read to their end");
    let processes = sandbox.require_processes().expect("processes");
    let sleep =
        processes.spawn(&Command::new("sleep").arg("60"), SpawnOptions::new()).await.expect("spawned");
    assert!(!processes.list_all().await.expect("a list").is_empty());
    let reached = processes.signal_any(sleep.pid, Signal::KILL, SignalReach::Process).await;
    assert!(reached.expect("an answer"));
    let pid = sleep.pid;
    sleep.wait().await.expect("an end");
    sandbox.destroy().await.expect("destroyed");
    provider.require_usage().expect("usage").ended(Some(sandbox.id())).await.expect("a report");

    let events = bed.events();
    let of = |op: &str, phase| {
        events.iter().find(|event| event.op == op && event.phase == phase).expect("an event")
    };
    // Also where the creation has no end.
    assert_eq!(
        of("create", Phase::Begin).detail["main"],
        json!({"argv": ["/bin/sh", "-c", "echo said"], "argc": 3, "cwd": "/tmp", "env": ["TOKEN"], "restart": "no"})
    );
    let logs = &of("logs", Phase::End);
    assert_eq!(logs.outcome, Some(Outcome::Ok));
    assert_eq!(json!(logs.detail), json!({"follow": true, "tail": 7, "bytes": 5}));
    assert_eq!(of("list_processes", Phase::End).detail["all"], true);
    let signal = &of("signal", Phase::End).detail;
    assert_eq!(json!(signal), json!({"pid": pid, "signal": 9, "reach": "process", "existed": true}));
    let ops: Vec<_> = ends(&events).into_iter().map(|(op, _)| op).collect();
    assert_eq!(ops, ["create", "logs", "list_processes", "signal", "spawn", "destroy"]);
    assert!(!std::fs::read_to_string(bed.file()).expect("text").contains("canary"));
}

#[tokio::test]
async fn what_can_not_be_recorded_is_refused_and_only_the_end_is_not() {
    let bed = Bed::new();
    let provider = bed.provider();
    let sandbox = provider.create(CreateOptions::new()).await.expect("a sandbox");
    bed.block();
    let refused = sandbox.files().write(&guest("/tmp/file"), "x".into()).await.expect_err("refused");
    assert_eq!((refused.operation(), refused.retry()), ("audit", Retry::Never));
    assert!(refused.hint().expect("a hint").contains("best-effort"));
    provider.create(CreateOptions::new()).await.expect_err("refused");
    sandbox.commands().run(&Command::new("true")).await.expect_err("refused");
    bed.unblock();
    // Nothing of it was done.
    assert!(sandbox.files().stat(&guest("/tmp/file")).await.expect("an answer").is_none());
    assert_eq!(provider.list_all(Query::new()).await.expect("a listing").len(), 1);
    bed.block();
    assert!(sandbox.destroy().await.expect("destroyed all the same"));
    bed.unblock();
    provider.destroy(sandbox.id()).await.expect("an answer");
    let lost: u64 = bed.events().iter().filter_map(|event| event.detail.get("events")?.as_u64()).sum();
    // Three beginnings, then beginning and end of the destruction.
    assert_eq!(lost, 5);
}

#[tokio::test]
async fn in_best_effort_work_goes_on_and_the_loss_is_counted() {
    let bed = Bed::new();
    let log = bed.log(AuditMode::BestEffort);
    let provider = Observed::new(MemoryProvider::new(), Observation::new().with_audit(log.clone()));
    let sandbox = provider.create(CreateOptions::new()).await.expect("a sandbox");
    bed.block();
    assert!(sandbox.commands().run(&Command::new("true")).await.expect("a run").status.is_success());
    assert_eq!(log.lost(), 2);
    bed.unblock();
    assert!(sandbox.destroy().await.expect("destroyed"));
    assert_eq!(bed.events()[2].detail["events"], 2);
}

/// A backend during whose work the record breaks.
#[derive(Clone, Debug)]
struct Breaking(MemoryProvider, PathBuf);

#[async_trait]
impl SandboxProvider for Breaking {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn create(&self, options: CreateOptions) -> Result<Arc<dyn Sandbox>> {
        let sandbox = self.0.create(options).await?;
        block(&self.1);
        Ok(sandbox)
    }

    async fn get_opts(&self, id: &SandboxId, options: GetOptions) -> Result<Option<Arc<dyn Sandbox>>> {
        self.0.get_opts(id, options).await
    }

    async fn describe(&self, id: &SandboxId) -> Result<Option<SandboxRecord>> {
        self.0.describe(id).await
    }

    async fn list(&self, query: Query) -> Result<BoxStream<'static, Result<SandboxRecord>>> {
        self.0.list(query).await
    }

    async fn destroy(&self, id: &SandboxId) -> Result<bool> {
        self.0.destroy(id).await
    }
}

#[tokio::test]
async fn a_sandbox_whose_creation_can_not_be_recorded_to_its_end_is_taken_back() {
    let bed = Bed::new();
    let memory = MemoryProvider::new();
    let provider = Observed::new(Breaking(memory.clone(), bed.inner()), bed.observation());
    let error = provider.create(CreateOptions::new()).await.expect_err("not recorded");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("its end can't be recorded"), "{error}");
    assert!(memory.list_all(Query::new()).await.expect("a listing").is_empty());
}

#[tokio::test]
async fn parts_are_those_of_the_provider_below() {
    let bed = Bed::new();
    let (plain, told) = (MemoryProvider::new(), bed.provider());
    let parts = |capabilities: Capabilities| serde_json::to_value(capabilities).expect("JSON");
    assert_eq!(parts(Capabilities::of_provider(&plain)), parts(Capabilities::of_provider(&told)));
    let of = async |provider: &dyn SandboxProvider| {
        provider.create(CreateOptions::new()).await.expect("a sandbox")
    };
    let (plain, told) = (of(&plain).await, of(&told).await);
    assert_eq!(parts(Capabilities::of_sandbox(&*plain)), parts(Capabilities::of_sandbox(&*told)));
}

#[tokio::test]
async fn the_trace_reaches_commands_unless_they_are_given_another() {
    let bed = Bed::new();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let trace = TraceContext::parse(parent, Some("vendor=1")).expect("a trace");
    let provider = Observed::new(MemoryProvider::new(), bed.observation().with_trace(trace));
    let sandbox = provider.create(CreateOptions::new()).await.expect("a sandbox");
    let show = Command::shell("echo $TRACEPARENT; echo $TRACESTATE");
    let output = sandbox.commands().run(&show).await.expect("a run");
    let text = output.stdout_lossy().into_owned();
    let (seen, state) = text.trim_end().split_once('\n').expect("two lines");
    let events = bed.events();
    let run = events.iter().find(|event| event.op == "run").expect("one");
    assert_eq!(seen, format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", run.span.expect("a span")));
    assert_eq!((state, run.parent.expect("a parent").to_string().as_str()), ("vendor=1", "b7ad6b7169203331"));

    let own = EnvVars::new().with("TRACEPARENT", "mine").expect("a variable");
    let output =
        sandbox.commands().run_opts(&show, RunOptions::default().with_env(own)).await.expect("a run");
    assert_eq!(output.stdout_lossy(), "mine\n\n");

    let other = TraceContext::begin();
    let output = other.clone().scope(sandbox.commands().run(&show)).await.expect("a run");
    assert!(output.stdout_lossy().contains(&other.trace_id().to_string()));
    // Where nobody names a trace, each operation begins one.
    let provider = Observed::new(MemoryProvider::new(), bed.observation());
    provider.create(CreateOptions::new()).await.expect("a sandbox");
    assert!(bed.events().last().expect("one").parent.is_none());
}

#[tokio::test]
async fn a_body_that_fails_is_an_error_in_the_record_too() {
    let bed = Bed::new();
    let sandbox = bed.provider().create(CreateOptions::new()).await.expect("a sandbox");
    let broken =
        stream::iter([Ok("some".into()), Err(sandbar_core::Error::invalid("test", "broken"))]).boxed();
    let files: &dyn Files = sandbox.files();
    files
        .write_opts(&guest("/tmp/file"), broken, sandbar_core::WriteOptions::default())
        .await
        .expect_err("broken");
    let last = bed.events().pop().expect("one");
    assert_eq!((last.outcome, last.error.as_deref()), (Some(Outcome::Error), Some("invalid_input")));
    let read = sandbox.files().read_opts(&guest("/tmp"), ReadOptions::default()).await;
    let read: Result<Vec<_>> = match read {
        Ok(read) => read.body.try_collect().await,
        Err(error) => Err(error),
    };
    read.expect_err("a folder");
}
