//! Sleep: who dies in it, who takes over, what is kept and what is refused meanwhile.

use std::net::TcpStream;
use std::time::Duration;

use futures::StreamExt;
use sandbar_core::{
    Command, CreateOptions, Deadline, DeadlineAction, DeadlineMode, ErrorKind, FilesExt, ForkOptions,
    GuestPath, ProcessEvent, ProviderExt, Sandbox, SandboxExt, SandboxProvider, SpawnOptions, State,
};

use crate::support::{Bed, agent_pid, create, end_shim, eventually, eventually_within, kill, shim_pid};

async fn state(bed: &Bed, sandbox: &dyn Sandbox) -> State {
    bed.provider().describe(sandbox.id()).await.expect("an answer").expect("a record").state
}

async fn sleep(sandbox: &dyn Sandbox) -> String {
    let outcome = sandbox.require_pausing().expect("pausing").hibernate().await.expect("asleep");
    assert!(outcome.processes_preserved, "{outcome:?}");
    outcome.mechanism
}

async fn wake(sandbox: &dyn Sandbox) {
    let outcome = sandbox.require_pausing().expect("pausing").resume().await.expect("awake");
    assert!(outcome.processes_preserved, "{outcome:?}");
}

async fn text(sandbox: &dyn Sandbox, script: &str) -> String {
    let output = sandbox.commands().run(&Command::shell(script)).await.expect("it ran");
    assert!(output.status.is_success(), "{output:?}");
    output.stdout_lossy().trim().to_owned()
}

/// A process writes numbers; after each sleep it is the same process, and no number is missing.
pub(crate) async fn cycles(count: u32) {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let writer = "i=0; while :; do echo $i; i=$((i+1)); done >> /tmp/numbers & echo $!";
    let pid = text(&*sandbox, &format!("sh -c '{writer}' </dev/null 2>/dev/null & wait")).await;
    for _ in 0..count {
        sleep(&*sandbox).await;
        wake(&*sandbox).await;
    }
    assert_eq!(text(&*sandbox, &format!("kill -0 {pid} && kill -STOP {pid} && echo same")).await, "same");
    let check = "awk 'BEGIN { n = 0 } $1 != n { print \"lost at\", n; exit } { n++ } END { print \"whole\" }' /tmp/numbers | head -1";
    assert_eq!(text(&*sandbox, check).await, "whole");
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after sleeps").await;
}

#[tokio::test]
async fn what_ends_by_itself_is_not_lost_by_a_sleep() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    // At every moment some process is about to end, or has ended and nobody took note.
    let breeder = "while :; do sleep 0.002 & sleep 0.003 & true; done";
    text(&*sandbox, &format!("sh -c '{breeder}' </dev/null >/dev/null 2>&1 & sh -c '{breeder}' </dev/null >/dev/null 2>&1 & true")).await;
    for _ in 0..20 {
        sleep(&*sandbox).await;
        wake(&*sandbox).await;
    }
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after it").await;
}

#[tokio::test]
async fn what_sleeps_is_found_asleep_and_refuses_with_the_way_out() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let mapping = sandbox.require_ports().expect("ports").publish(8000).await.expect("published");
    sleep(&*sandbox).await;
    assert_eq!(state(&bed, &*sandbox).await, State::Sleeping);
    let error = sandbox.commands().run(&Command::new("true")).await.expect_err("asleep");
    assert_eq!((error.kind(), error.state()), (ErrorKind::Conflict, Some(State::Sleeping)));
    // Somebody takes the connection and lets nobody in: it ends, and does not wait for what sleeps.
    let mut knock = TcpStream::connect((mapping.host.as_str(), mapping.port)).expect("a connection");
    knock.set_read_timeout(Some(Duration::from_secs(20))).expect("a bound");
    assert_eq!(std::io::Read::read(&mut knock, &mut [0]).unwrap_or(0), 0);
    sandbox.wake().await.expect("awake");
    assert_eq!(state(&bed, &*sandbox).await, State::Running);
    assert_eq!(sandbox.record().await.expect("a record").ports, [mapping]);
    assert_eq!(text(&*sandbox, "echo on").await, "on");
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after it").await;
}

#[tokio::test]
async fn a_sleeper_whose_shim_is_gone_is_woken_by_another_with_its_network() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let mapping = sandbox.require_ports().expect("ports").publish(8000).await.expect("published");
    let processes = sandbox.require_processes().expect("processes");
    let command = Command::shell("echo begun; while ! [ -e /tmp/go ]; do sleep 0.05; done; echo done");
    let mut process = processes.spawn(&command, SpawnOptions::new()).await.expect("a process");
    assert!(
        matches!(process.events.next().await, Some(Ok(ProcessEvent::Stdout(bytes))) if bytes == "begun\n")
    );
    sleep(&*sandbox).await;
    end_shim(&bed, sandbox.id()).await;
    assert_eq!(state(&bed, &*sandbox).await, State::Sleeping, "nobody wakes it by looking");
    let other = bed.provider().require(sandbox.id()).await.expect("a handle");
    assert!(other.commands().run(&Command::new("true")).await.is_err());
    // The new shim lets nobody in, and takes a deadline for when it wakes.
    let later = sandbar_core::Deadline::In(Duration::from_secs(7200));
    let set =
        other.set_deadline(later, sandbar_core::DeadlineMode::Set).await.expect("set").expect("a deadline");
    let mut knock = TcpStream::connect((mapping.host.as_str(), mapping.port)).expect("a connection");
    knock.set_read_timeout(Some(Duration::from_secs(20))).expect("a bound");
    assert_eq!(std::io::Read::read(&mut knock, &mut [0]).unwrap_or(0), 0, "it ends and does not wait");
    wake(&*other).await;
    assert_eq!(other.record().await.expect("a record").deadline, Some(set));
    let go = GuestPath::new("/tmp/go").expect("a path");
    other.files().write(&go, "".into()).await.expect("written");
    // The connection to the agent lived through it all.
    let mut said = Vec::new();
    while let Some(Ok(event)) = process.events.next().await {
        if let ProcessEvent::Stdout(bytes) = event {
            said.extend_from_slice(&bytes);
        }
    }
    assert_eq!(said, b"done\n");
    if other.record().await.expect("a record").egress.gateway.is_some() {
        let fetch = "import urllib.request as r; print(r.urlopen('http://control.sandbar.internal', timeout=20).read())";
        let output =
            other.commands().run(&Command::new("python3").args(["-c", fetch])).await.expect("it ran");
        assert!(output.stdout_lossy().contains("sandbar"), "{output:?}");
    }
    other.destroy().await.expect("destroyed");
    bed.assert_empty("after it").await;
}

#[tokio::test]
async fn a_sleeper_is_destroyed_with_its_shim_and_without() {
    let Some(bed) = Bed::new() else { return };
    for without in [false, true] {
        let sandbox = create(&bed.provider()).await;
        text(&*sandbox, "sleep 4000 </dev/null >/dev/null 2>&1 &").await;
        sleep(&*sandbox).await;
        if without {
            end_shim(&bed, sandbox.id()).await;
        }
        assert!(bed.provider().destroy(sandbox.id()).await.expect("destroyed"));
        bed.assert_empty("after a sleeper").await;
    }
}

#[tokio::test]
async fn a_sleeper_whose_processes_are_gone_is_stopped_and_keeps_its_files() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    sleep(&*sandbox).await;
    // As after a restart of the machine: nobody of it is left.
    kill(shim_pid(&bed, sandbox.id()).expect("a shim"));
    kill(agent_pid(&bed, sandbox.id()));
    eventually("it is found stopped", async || state(&bed, &*sandbox).await == State::Stopped).await;
    let record = bed.provider().describe(sandbox.id()).await.expect("an answer").expect("a record");
    assert!(record.reason.is_some(), "{record:?}");
    let error = sandbox.wake().await.expect_err("nothing to wake");
    assert_eq!((error.kind(), error.state()), (ErrorKind::Conflict, Some(State::Stopped)));
    assert!(bed.provider().destroy(sandbox.id()).await.expect("destroyed"));
    bed.assert_empty("after it").await;
}

#[tokio::test]
async fn a_deadline_puts_to_sleep_again_and_again() {
    let Some(bed) = Bed::new() else { return };
    let options =
        CreateOptions::new().with_deadline(Duration::from_secs(2)).with_on_deadline(DeadlineAction::Pause);
    let sandbox = bed.provider().create(options).await.expect("a sandbox");
    let asleep = async || state(&bed, &*sandbox).await == State::Sleeping;
    let bound = Duration::from_secs(20);
    let left = |record: &sandbar_core::SandboxRecord| {
        record.deadline.expect("a deadline").duration_since(jiff::Timestamp::now()).as_millis()
    };
    eventually_within(bound, "it sleeps at its deadline", asleep).await;
    assert_eq!(sandbox.record().await.expect("a record").deadline, None, "it is met");
    // A copy runs, so it has an end; it has as much time again as its parent has, also in its next life.
    let (copy, _) =
        sandbox.require_forking().expect("forks").fork(ForkOptions::default()).await.expect("a copy");
    assert!((1..=2000).contains(&left(&copy.record().await.expect("a record"))));
    copy.destroy().await.expect("destroyed");
    wake(&*sandbox).await;
    let record = sandbox.record().await.expect("a record");
    assert_eq!(record.on_deadline, DeadlineAction::Pause, "the policy stays");
    assert!((1..=2000).contains(&left(&record)), "{record:?}");
    eventually_within(bound, "it sleeps at the next", asleep).await;
    // What is to end at once is no measure for the time after.
    wake(&*sandbox).await;
    sandbox.set_deadline(Deadline::In(Duration::from_secs(100)), DeadlineMode::Set).await.expect("set");
    sandbox.set_deadline(Deadline::In(Duration::ZERO), DeadlineMode::Set).await.expect("set");
    eventually_within(bound, "it sleeps at once", asleep).await;
    // Without a shim nothing meets a deadline, and whoever comes next finds it as it was.
    wake(&*sandbox).await;
    assert!(left(&sandbox.record().await.expect("a record")) > 50_000);
    // One that is stopped at its time to sleep has it when it is started again.
    kill(agent_pid(&bed, sandbox.id()));
    sandbox.require_pausing().expect("pausing").resume().await.expect("started");
    assert!(left(&sandbox.record().await.expect("a record")) > 50_000);
    let pausing = sandbox.require_pausing().expect("pausing");
    pausing.set_deadline_action(DeadlineAction::Destroy).await.expect("set");
    let soon = sandbar_core::Deadline::In(Duration::from_millis(300));
    sandbox.set_deadline(soon, sandbar_core::DeadlineMode::Set).await.expect("set");
    let gone = async || bed.provider().describe(sandbox.id()).await.expect("an answer").is_none();
    eventually_within(bound, "it is destroyed at the last", gone).await;
    bed.assert_empty("after it").await;
}
