//! The main command while shims and agents die, and what its logs cost.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use sandbar_core::{
    Command, CreateOptions, ExitStatus, Follow, LogEvent, LogOptions, MainCommand, MainState, MainStatus,
    ProviderExt, RestartPolicy, Sandbox, SandboxExt, SandboxProvider, State,
};

use crate::support::{Bed, agent_pid, descendants, end_shim, eventually, eventually_within, kill, shim_pid};

async fn with(bed: &Bed, script: &str, restart: RestartPolicy) -> Arc<dyn Sandbox> {
    let main = MainCommand::new(Command::shell(script)).with_restart(restart);
    bed.provider().create(CreateOptions::new().with_main(main)).await.expect("a sandbox")
}

async fn status(sandbox: &dyn Sandbox) -> MainStatus {
    sandbox
        .require_main_command()
        .expect("the part")
        .status()
        .await
        .expect("an answer")
        .expect("a main command")
}

/// What is kept of the logs, and how many bytes are lost.
async fn logs(sandbox: &dyn Sandbox, options: LogOptions) -> (Vec<u8>, u64) {
    let mut logs = sandbox.require_main_command().expect("the part").logs(options).await.expect("logs");
    let (mut said, mut lost) = (Vec::new(), 0);
    while let Some(event) = logs.next().await {
        match event.expect("a piece") {
            LogEvent::Output(chunk) => said.extend_from_slice(&chunk.bytes),
            LogEvent::Lost(bytes) => lost += bytes,
            _ => {}
        }
    }
    (said, lost)
}

/// The processes of a sandbox whose command line has this word.
fn named(bed: &Bed, sandbox: &dyn Sandbox, word: &str) -> Vec<i32> {
    let has = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .unwrap_or_default()
            .split('\0')
            .any(|arg| arg == word)
    };
    descendants(agent_pid(bed, sandbox.id())).into_iter().filter(has).collect()
}

#[tokio::test]
async fn it_goes_on_without_a_shim_and_nothing_it_says_is_lost() {
    let Some(bed) = Bed::new() else { return };
    let script = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i; sleep 0.05; done; exec sleep 4242";
    let sandbox = with(&bed, script, RestartPolicy::No).await;
    let before = status(&*sandbox).await;
    end_shim(&bed, sandbox.id()).await;
    // Nobody watches over it: that is what is said, and looking brings no shim.
    let record = bed.provider().describe(sandbox.id()).await.expect("an answer").expect("a record");
    assert_eq!(record.main.expect("a main command").state, MainState::Unknown);
    eventually("its last line is said", async || !named(&bed, &*sandbox, "4242").is_empty()).await;
    assert!(shim_pid(&bed, sandbox.id()).is_none());

    let (said, lost) = logs(&*sandbox, LogOptions::default()).await;
    let expected = (1..=40).map(|line| format!("line {line}")).collect::<Vec<_>>().join("\n") + "\n";
    assert_eq!((String::from_utf8_lossy(&said).as_ref(), lost), (expected.as_str(), 0));
    let after = status(&*sandbox).await;
    assert_eq!((after.pid, after.restarts, after.started_at), (before.pid, 0, before.started_at));
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after the adopted one").await;
}

#[tokio::test]
async fn its_policy_holds_without_a_shim() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = with(&bed, "echo up; exec sleep 4343", RestartPolicy::OnFailure).await;
    eventually("it runs", async || !named(&bed, &*sandbox, "4343").is_empty()).await;
    let first = named(&bed, &*sandbox, "4343");
    end_shim(&bed, sandbox.id()).await;
    first.iter().copied().for_each(kill);
    eventually("it was started again", async || {
        let now = named(&bed, &*sandbox, "4343");
        !now.is_empty() && now != first
    })
    .await;
    assert!(shim_pid(&bed, sandbox.id()).is_none(), "the agent did that alone");
    let status = status(&*sandbox).await;
    assert_eq!(
        (status.state, status.restarts, status.exit),
        (MainState::Running, 1, Some(ExitStatus::Signal(9)))
    );
    eventually("both starts are in the logs", async || {
        logs(&*sandbox, LogOptions::default()).await.0 == b"up\nup\n"
    })
    .await;
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after the restarted one").await;
}

#[tokio::test]
async fn a_follower_goes_on_when_the_shim_is_replaced() {
    let Some(bed) = Bed::new() else { return };
    let script = "i=0; while [ $i -lt 30 ]; do i=$((i+1)); echo $i; sleep 0.05; done";
    let sandbox = with(&bed, script, RestartPolicy::No).await;
    let follow = LogOptions { follow: Follow::Yes, ..LogOptions::default() };
    let follower = Arc::clone(&sandbox);
    let following = tokio::spawn(async move { logs(&*follower, follow).await });
    end_shim(&bed, sandbox.id()).await;
    let (said, lost) = following.await.expect("no panic");
    let expected = (1..=30).map(|line| line.to_string()).collect::<Vec<_>>().join("\n") + "\n";
    assert_eq!((String::from_utf8_lossy(&said).as_ref(), lost), (expected.as_str(), 0));
    sandbox.destroy().await.expect("destroyed");
}

#[tokio::test]
async fn what_the_agent_could_not_keep_is_said_in_bytes() {
    const SAID: u64 = 2_000_000;
    let Some(bed) = Bed::new() else { return };
    let script = format!("sleep 1; head -c {SAID} /dev/zero; exec sleep 4444");
    let sandbox = with(&bed, &script, RestartPolicy::No).await;
    end_shim(&bed, sandbox.id()).await;
    eventually("all is said", async || !named(&bed, &*sandbox, "4444").is_empty()).await;
    let (said, lost) = logs(&*sandbox, LogOptions::default()).await;
    assert!(lost > 0 && !said.is_empty(), "{lost} lost, {} kept", said.len());
    assert_eq!(said.len() as u64 + lost, SAID);
    sandbox.destroy().await.expect("destroyed");
}

#[tokio::test]
async fn a_burst_is_kept_whole_while_a_shim_is_there() {
    /// A machine that is busy with others may give a shim no time for as long as output waits for it.
    const TRIES: u32 = 5;
    let Some(bed) = Bed::new() else { return };
    for left in (0..TRIES).rev() {
        let sandbox = with(&bed, "head -c 5000000 /dev/zero; echo end", RestartPolicy::No).await;
        let follow = LogOptions { follow: Follow::Yes, ..LogOptions::default() };
        let (said, lost) = logs(&*sandbox, follow).await;
        sandbox.destroy().await.expect("destroyed");
        assert_eq!(said.len() as u64 + lost, 5_000_004);
        if lost == 0 {
            return;
        }
        assert!(left > 0, "{lost} lost at the last try, too");
    }
}

/// How long a busy machine may take to write 16 MiB of what a flood says.
const FLOOD: Duration = Duration::from_secs(60);

#[tokio::test]
async fn logs_of_a_flood_are_bounded() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = with(&bed, "exec yes", RestartPolicy::No).await;
    let folder = bed.folder(sandbox.id());
    eventually_within(FLOOD, "a file is put aside", async || folder.join("main.log.1").exists()).await;
    let first = fs::metadata(folder.join("main.log.1")).expect("a file");
    // Long enough for it to be replaced.
    eventually_within(FLOOD, "it is replaced", async || {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(folder.join("main.log.1")).is_ok_and(|now| now.ino() != first.ino())
    })
    .await;
    for name in ["main.log", "main.log.1"] {
        let size = fs::metadata(folder.join(name)).map_or(0, |data| data.len());
        assert!(size < 9 << 20, "{name} has {size} bytes");
    }
    let (said, lost) = logs(&*sandbox, LogOptions::default()).await;
    assert!(lost > 0 && said.len() > 1 << 20, "{lost} lost, {} kept", said.len());
    // And the sandbox still serves others.
    let output = sandbox.commands().run(&Command::new("echo").arg("on")).await.expect("an output");
    assert_eq!(output.stdout_lossy(), "on\n");
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after the flood").await;
}

#[tokio::test]
async fn logs_outlast_the_processes() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = with(&bed, "echo words; exec sleep 600", RestartPolicy::Always).await;
    eventually("it spoke", async || logs(&*sandbox, LogOptions::default()).await.0 == b"words\n").await;
    kill(agent_pid(&bed, sandbox.id()));
    eventually("it stopped", async || sandbox.record().await.expect("a record").state == State::Stopped)
        .await;
    let now = status(&*sandbox).await;
    assert_eq!((now.state, now.exit, now.pid), (MainState::Exited, Some(ExitStatus::Unknown), None));
    for follow in [Follow::No, Follow::Yes] {
        let options = LogOptions { follow, ..LogOptions::default() };
        assert_eq!(logs(&*sandbox, options).await.0, b"words\n");
    }
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after the stopped one").await;
}

#[tokio::test]
async fn its_arguments_are_in_no_record_and_no_host_command_line() {
    const SECRET: &str = "s3cret-5152";
    let Some(bed) = Bed::new() else { return };
    let main = MainCommand::new(Command::shell("sleep 600").arg(SECRET));
    let sandbox = bed.provider().create(CreateOptions::new().with_main(main)).await.expect("a sandbox");
    let shim = shim_pid(&bed, sandbox.id()).expect("a shim");
    let line = fs::read_to_string(format!("/proc/{shim}/cmdline")).expect("its command line");
    assert!(!line.contains(SECRET));
    for file in ["record.json", "shim.log", "agent.log"] {
        let text = fs::read_to_string(bed.folder(sandbox.id()).join(file)).unwrap_or_default();
        assert!(!text.contains(SECRET), "{file}");
    }
    let handle = bed.provider().require(sandbox.id()).await.expect("a handle");
    handle.destroy().await.expect("destroyed");
}
