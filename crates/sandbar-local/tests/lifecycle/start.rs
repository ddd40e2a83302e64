//! Stopped sandboxes: their files are whole, and they are started again with all that they were but their processes.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use sandbar_core::{
    Command, CreateOptions, EnvVars, ErrorKind, HibernationOutcome, Labels, Lifetime, LogEvent, LogOptions,
    MainCommand, MainState, ProviderExt, Resources, Sandbox, SandboxExt, SandboxName, SandboxProvider, State,
};

use crate::support::{Bed, agent_pid, create, eventually, has_ended, kill, shim_pid};

async fn state(bed: &Bed, sandbox: &dyn Sandbox) -> State {
    bed.provider().describe(sandbox.id()).await.expect("an answer").expect("a record").state
}

async fn text(sandbox: &dyn Sandbox, script: &str) -> String {
    let output = sandbox.commands().run(&Command::shell(script)).await.expect("it ran");
    assert!(output.status.is_success(), "{output:?}");
    output.stdout_lossy().trim().to_owned()
}

/// Ends its processes, and waits until it is stopped and nobody guards it.
async fn stop(bed: &Bed, sandbox: &dyn Sandbox) {
    let shim = shim_pid(bed, sandbox.id()).expect("a shim");
    kill(agent_pid(bed, sandbox.id()));
    eventually("it is found stopped", async || state(bed, sandbox).await == State::Stopped).await;
    eventually("its shim ends", async || has_ended(shim)).await;
}

/// As after a restart of the machine: nobody of it is left, and nobody wrote that down.
async fn crash(bed: &Bed, sandbox: &dyn Sandbox) {
    shim_pid(bed, sandbox.id()).into_iter().for_each(kill);
    kill(agent_pid(bed, sandbox.id()));
    eventually("it is found stopped", async || state(bed, sandbox).await == State::Stopped).await;
}

async fn resume(sandbox: &dyn Sandbox) -> HibernationOutcome {
    sandbox.require_pausing().expect("pausing").resume().await.expect("it runs")
}

#[tokio::test]
async fn what_was_stopped_runs_again_with_all_but_its_processes() {
    let Some(bed) = Bed::new() else { return };
    let options = CreateOptions::new()
        .with_name(SandboxName::new("again").expect("a name"))
        .with_labels(Labels::new().with("team", "blue").expect("a label"))
        .with_env(EnvVars::new().with("KEPT", "value").expect("a variable"))
        .with_resources(Resources::default().with_pids(123));
    let sandbox = bed.provider().create(options).await.expect("a sandbox");
    let mapping = sandbox.require_ports().expect("ports").publish(8000).await.expect("published");
    text(&*sandbox, "echo one > /tmp/file; echo two > ~/file; rm -f /etc/hostname 2>/dev/null; true").await;
    let before = sandbox.record().await.expect("a record");
    for round in 0..3 {
        if round == 1 {
            crash(&bed, &*sandbox).await;
        } else {
            stop(&bed, &*sandbox).await;
        }
        let record = sandbox.record().await.expect("a record");
        assert!(record.reason.is_some() && record.ports.is_empty(), "{record:?}");
        let outcome = resume(&*sandbox).await;
        assert!(!outcome.processes_preserved && outcome.mechanism == "start", "{outcome:?}");
        assert_eq!(text(&*sandbox, "cat /tmp/file ~/file; echo $KEPT").await, "one\ntwo\nvalue");
        let after = sandbox.record().await.expect("a record");
        assert_eq!((after.state, after.reason.clone()), (State::Running, None));
        assert_eq!(
            (after.id, after.name, after.labels, after.deadline, after.created_at),
            (
                before.id.clone(),
                before.name.clone(),
                before.labels.clone(),
                before.deadline,
                before.created_at
            )
        );
        assert_eq!(after.limits["pids"].value, Some(123));
        assert_eq!((after.ports, after.egress), (vec![mapping.clone()], before.egress.clone()));
    }
    // What runs is what any other is: it sleeps, and it goes.
    assert!(
        sandbox.require_pausing().expect("pausing").hibernate().await.expect("asleep").processes_preserved
    );
    assert!(resume(&*sandbox).await.processes_preserved);
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after it").await;
}

#[tokio::test]
async fn its_main_command_is_started_anew_and_its_logs_go_on() {
    let Some(bed) = Bed::new() else { return };
    let main = MainCommand::new(Command::shell(
        "n=$((1 + $(cat ~/n 2>/dev/null || echo 0))); echo $n > ~/n; echo begun $n; exec sleep 4545",
    ));
    let sandbox = bed.provider().create(CreateOptions::new().with_main(main)).await.expect("a sandbox");
    let part = sandbox.require_main_command().expect("the part");
    for round in 1..4 {
        let wanted: Vec<_> = (1..=round).map(|n| format!("begun {n}\n")).collect();
        let wanted = wanted.concat();
        eventually("it is said", async || {
            let mut logs = part.logs(LogOptions::default()).await.expect("logs");
            let mut said = Vec::new();
            while let Some(event) = logs.next().await {
                match event.expect("a piece") {
                    LogEvent::Output(chunk) => said.extend_from_slice(&chunk.bytes),
                    other => panic!("{other:?}"),
                }
            }
            said == wanted.as_bytes()
        })
        .await;
        let status = part.status().await.expect("an answer").expect("a main command");
        assert_eq!((status.state, status.restarts), (MainState::Running, 0), "{status:?}");
        stop(&bed, &*sandbox).await;
        resume(&*sandbox).await;
    }
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after it").await;
}

#[tokio::test]
async fn whoever_starts_it_at_once_finds_it_running() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    stop(&bed, &*sandbox).await;
    let mut starts = Vec::new();
    for _ in 0..5 {
        let (provider, id) = (bed.provider(), sandbox.id().clone());
        starts.push(tokio::spawn(async move {
            let sandbox: Arc<dyn Sandbox> = provider.require(&id).await.expect("a handle");
            let outcome = resume(&*sandbox).await;
            assert_eq!(text(&*sandbox, "echo on").await, "on");
            u32::from(outcome.mechanism == "start")
        }));
    }
    let mut started = 0;
    for start in starts {
        started += start.await.expect("no panic");
    }
    assert_eq!(started, 1, "one starts it, and the others find that");
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after it").await;
}

#[tokio::test]
async fn a_shim_killed_while_it_starts_one_leaves_it_stopped_or_running() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    text(&*sandbox, "echo kept > ~/file").await;
    for round in 0..crate::support::size(12) {
        if state(&bed, &*sandbox).await == State::Running {
            crash(&bed, &*sandbox).await;
        }
        let (provider, id) = (bed.provider(), sandbox.id().clone());
        let starting = tokio::spawn(async move {
            let sandbox = provider.require(&id).await.expect("a handle");
            sandbox.require_pausing().expect("pausing").resume().await
        });
        // Some moment of the start, another one in each round.
        tokio::time::sleep(Duration::from_millis(u64::from(round % 12) * 3)).await;
        shim_pid(&bed, sandbox.id()).into_iter().for_each(kill);
        let _ = starting.await.expect("no panic");
        let seen = state(&bed, &*sandbox).await;
        assert!(matches!(seen, State::Stopped | State::Running), "{seen:?}");
    }
    resume(&*sandbox).await;
    assert_eq!(text(&*sandbox, "cat ~/file").await, "kept");
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after it").await;
}

#[tokio::test]
async fn what_belongs_to_its_maker_is_not_started_again() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let options = CreateOptions::new().with_lifetime(Lifetime::Owned);
    let sandbox = provider.create(options).await.expect("a sandbox");
    crash(&bed, &*sandbox).await;
    let error = sandbox.require_pausing().expect("pausing").resume().await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after it").await;
}

/// Killed and resumed at once: whoever is told that it runs can use it.
pub(crate) async fn resumed_at_once(rounds: u32) {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    text(&*sandbox, "echo kept > ~/file").await;
    for round in 0..rounds {
        if round % 3 == 2 {
            sandbox.require_pausing().expect("pausing").hibernate().await.expect("asleep");
        }
        kill(agent_pid(&bed, sandbox.id()));
        // Not always in the same moment of its end.
        tokio::time::sleep(Duration::from_micros(u64::from(round % 7) * 300)).await;
        resume(&*sandbox).await;
        assert_eq!(text(&*sandbox, "cat ~/file").await, "kept", "round {round}");
        assert_eq!(state(&bed, &*sandbox).await, State::Running, "round {round}");
    }
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after it").await;
}
