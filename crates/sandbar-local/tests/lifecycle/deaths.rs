//! The table of deaths: the caller, the shim, the agent, and several of them.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command as HostCommand, Stdio};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use sandbar_core::{
    Command, CreateOptions, ErrorKind, FilesExt, GuestPath, Lifetime, ProviderExt, Query, SandboxProvider,
    SpawnOptions, State,
};

use crate::support::{
    Bed, agent_pid, create, descendants, end_shim, eventually, has_ended, is_alive, kill, shim_pid,
};

/// The executable that shims are made from.
fn helper() -> std::path::PathBuf {
    std::env::var_os("SANDBAR_HELPER").map_or_else(
        || std::env::current_exe().expect("a path").ancestors().nth(2).expect("a folder").join("sandbar"),
        Into::into,
    )
}

#[tokio::test]
async fn a_caller_that_dies_before_the_sandbox_is_ready_leaves_nothing() {
    let Some(bed) = Bed::new() else { return };
    let mut shim = HostCommand::new(helper())
        .arg0("sandbar-shim")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shim");
    let task = serde_json::json!({"create": {
        "name": "early", "project": null, "env": {}, "labels": {}, "ports": [], "mounts": [],
        "limits": {"memory_bytes": null, "cpu_millis": null, "pids": null, "disk_bytes": null, "demanded": []},
        "lifetime_ms": null, "owner": null,
    }});
    let orders = serde_json::json!({"v": 1, "library": "test", "home": bed.home(), "task": task});
    let mut pipe = shim.stdin.take().expect("a pipe");
    writeln!(pipe, "{orders}").expect("the orders are taken");
    drop(pipe);
    let output = shim.wait_with_output().expect("its end");
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(report.contains("the caller is gone"), "{report}");
    bed.assert_empty("after its caller's death").await;
    // The name is free.
    let name = sandbar_core::SandboxName::new("early").expect("a name");
    let sandbox = bed.provider().create(CreateOptions::new().with_name(name)).await.expect("a sandbox");
    sandbox.destroy().await.expect("destroyed");
}

#[tokio::test]
async fn a_sandbox_that_belongs_to_its_maker_ends_with_it() {
    let Some(bed) = Bed::new() else { return };
    let mut caller = HostCommand::new(helper())
        .args(["run", "--", "sleep", "1000"])
        .env("SANDBAR_HOME", bed.home())
        .stdin(Stdio::null())
        .spawn()
        .expect("a caller");
    let provider = bed.provider();
    eventually("it runs", async || {
        let listed = provider.list_all(Query::new().with_states([State::Running])).await.expect("a listing");
        listed.len() == 1
    })
    .await;
    caller.kill().expect("killed");
    caller.wait().expect("its end");
    eventually("it is gone", async || provider.list_all(Query::new()).await.expect("a listing").is_empty())
        .await;
    bed.assert_empty("after its owner's death").await;
}

#[tokio::test]
async fn a_dropped_provider_lets_go_of_what_belongs_to_it() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let owned =
        provider.create(CreateOptions::new().with_lifetime(Lifetime::Owned)).await.expect("a sandbox");
    let kept = create(&provider).await.id().clone();
    drop((owned, provider));
    let other = bed.provider();
    eventually("the owned one is gone", async || {
        other.list_all(Query::new()).await.expect("a listing").len() == 1
    })
    .await;
    assert!(other.destroy(&kept).await.expect("destroyed"), "the other one lives on");
    bed.assert_empty("after both").await;
}

#[tokio::test]
async fn a_sandbox_outlives_its_shim_and_the_next_command_adopts_it() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let sandbox = provider.create(CreateOptions::new().with_ports([8000])).await.expect("a sandbox");
    let id = sandbox.id().clone();
    let processes = sandbox.processes().expect("processes");
    let server = "import socket; s=socket.create_server(('127.0.0.1',8000)); print('up',flush=True)\n\
                  while True:\n c,_=s.accept(); c.sendall(b'hello'); c.close()";
    let python = std::path::Path::new("/usr/bin/python3").exists();
    let command = if python {
        Command::new("/usr/bin/python3").args(["-c", server])
    } else {
        Command::new("sleep").arg("1000")
    };
    let mut process = processes.spawn(&command, SpawnOptions::new()).await.expect("a process");
    if python {
        use futures::StreamExt;
        process.events.next().await.expect("a word").expect("from the server");
    }
    let before = sandbox.record().await.expect("a record");
    let shim = shim_pid(&bed, &id).expect("a shim");
    let agent = agent_pid(&bed, &id);
    kill(shim);
    eventually("the shim is gone", async || has_ended(shim)).await;

    // Reading tells the truth and adopts nothing.
    let other = bed.provider();
    assert_eq!(other.describe(&id).await.expect("an answer").expect("a record").state, State::Running);
    assert!(is_alive(agent) && shim_pid(&bed, &id).is_none());

    let handle = other.require(&id).await.expect("a handle");
    let output = handle.commands().run(&Command::shell("echo again")).await.expect("an output");
    assert_eq!(output.stdout_lossy(), "again\n");
    let adopter = shim_pid(&bed, &id).expect("a new shim");
    assert_ne!(adopter, shim);
    assert_eq!(agent_pid(&bed, &id), agent, "the same agent");
    let listed = handle.processes().expect("processes").list().await.expect("a list");
    assert!(listed.iter().any(|info| info.pid == process.pid), "its processes run on: {listed:?}");
    let after = handle.record().await.expect("a record");
    assert_eq!(after.ports, before.ports, "ports keep their addresses");
    if python {
        let address = (after.ports[0].host.as_str(), after.ports[0].port);
        let mut stream = std::net::TcpStream::connect(address).expect("a connection");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stream, &mut text).expect("an answer");
        assert_eq!(text, "hello");
    }
    assert!(handle.destroy().await.expect("destroyed"));
    assert!(!is_alive(agent));
    bed.assert_empty("after the adopted one").await;
}

#[tokio::test]
async fn two_commands_at_once_adopt_it_once() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let id = sandbox.id().clone();
    kill(shim_pid(&bed, &id).expect("a shim"));
    let runs = (0..6).map(|number| {
        let provider = bed.provider();
        let id = id.clone();
        async move {
            let handle = provider.require(&id).await.expect("a handle");
            let output = handle.commands().run(&Command::new("echo").arg(number.to_string())).await;
            assert_eq!(output.expect("an output").stdout_lossy(), format!("{number}\n"));
        }
    });
    futures::future::join_all(runs).await;
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after them").await;
}

#[tokio::test]
async fn a_dead_agent_leaves_a_stopped_sandbox_with_its_files() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let sandbox = create(&provider).await;
    let id = sandbox.id().clone();
    let path = GuestPath::new("/home/user/kept").expect("a path");
    sandbox.files().write(&path, "precious".into()).await.expect("written");
    kill(agent_pid(&bed, &id));
    eventually("it is stopped", async || {
        provider.describe(&id).await.expect("an answer").is_some_and(|record| record.state == State::Stopped)
    })
    .await;
    let record = sandbox.record().await.expect("a record");
    assert!(
        record.reason.as_deref().is_some_and(|reason| reason.contains("signal 9")),
        "{:?}",
        record.reason
    );
    let error = sandbox.commands().run(&Command::new("true")).await.expect_err("nothing runs in it");
    assert_eq!((error.kind(), error.state()), (ErrorKind::Conflict, Some(State::Stopped)));
    assert!(error.hint().is_some());
    let kept = bed.folder(&id).join("fs/upper/home/user/kept");
    // With subordinate ids the file is another user's.
    if let Ok(text) = std::fs::read_to_string(kept) {
        assert_eq!(text, "precious");
    }
    eventually("no shim is left", async || shim_pid(&bed, &id).is_none()).await;
    assert!(sandbox.destroy().await.expect("destroyed"));
    assert!(!sandbox.destroy().await.expect("nothing more to destroy"));
    bed.assert_empty("after the stopped one").await;
}

#[tokio::test]
async fn a_dead_agent_of_an_owned_sandbox_ends_it() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let sandbox =
        provider.create(CreateOptions::new().with_lifetime(Lifetime::Owned)).await.expect("a sandbox");
    kill(agent_pid(&bed, sandbox.id()));
    eventually("it is gone", async || provider.describe(sandbox.id()).await.expect("an answer").is_none())
        .await;
    let error = sandbox.commands().run(&Command::new("true")).await.expect_err("nothing runs in it");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    bed.assert_empty("after it").await;
}

#[tokio::test]
async fn a_command_in_a_dying_sandbox_is_never_a_success() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let sandbox = create(&provider).await;
    let handle = provider.require(sandbox.id()).await.expect("a handle");
    // More than a pipe holds: once all of it is written, the agent has passed on that the command runs.
    let noisy = Command::shell("head -c 1048576 /dev/zero; exec sleep 1000");
    let running = tokio::spawn(async move { handle.commands().run(&noisy).await });
    let agent = agent_pid(&bed, sandbox.id());
    let sleeps = |pid: &i32| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"sleep\x001000\0")
    };
    eventually("its output is on its way", async || descendants(agent).iter().any(sleeps)).await;
    kill(agent);
    let error = running.await.expect("no panic").expect_err("it did not end well");
    assert!(matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound), "{error:?}");
    assert_eq!(error.partial().expect("partial output").ended, Some(true));
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after it").await;
}

#[tokio::test]
async fn without_shim_and_agent_it_is_stopped_and_can_be_destroyed() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let sandbox = create(&provider).await;
    let id = sandbox.id().clone();
    end_shim(&bed, &id).await;
    let agent = agent_pid(&bed, &id);
    kill(agent);
    eventually("the agent is gone", async || !is_alive(agent)).await;
    let record = provider.describe(&id).await.expect("an answer").expect("a record");
    assert_eq!(record.state, State::Stopped);
    assert!(record.reason.is_some() && record.ports.is_empty());
    let error = sandbox.commands().run(&Command::new("true")).await.expect_err("nothing runs in it");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(provider.destroy(&id).await.expect("destroyed"));
    bed.assert_empty("after it").await;
}

#[tokio::test]
async fn an_orphan_of_a_dead_owner_is_not_brought_back() {
    let Some(bed) = Bed::new() else { return };
    let mut caller = HostCommand::new(helper())
        .args(["run", "--", "sleep", "1000"])
        .env("SANDBAR_HOME", bed.home())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a caller");
    let provider = bed.provider();
    let mut id = None;
    eventually("it runs", async || {
        let listed = provider.list_all(Query::new().with_states([State::Running])).await.expect("a listing");
        id = listed.first().map(|record| record.id.clone());
        id.is_some()
    })
    .await;
    let id = id.expect("an id");
    end_shim(&bed, &id).await;
    caller.kill().expect("killed");
    caller.wait().expect("its end");
    let handle = provider.require(&id).await.expect("it is still there");
    let error = handle.commands().run(&Command::new("true")).await.expect_err("it has no owner any more");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
    bed.assert_empty("after its owner").await;
}

/// A program inside can have its shim open many connections at once. Whoever takes a sandbox down must not take "could not look" for "gone".
#[tokio::test]
async fn a_shim_out_of_descriptors_leaves_nobody_behind() {
    let Some(bed) = Bed::new() else { return };
    for spare in [1, 2, 4] {
        let sandbox = create(&bed.provider()).await;
        let (shim, agent) = (shim_pid(&bed, sandbox.id()).expect("a shim"), agent_pid(&bed, sandbox.id()));
        let open = std::fs::read_dir(format!("/proc/{shim}/fd")).expect("its descriptors").count();
        let few = Some(u64::try_from(open + spare).expect("a few"));
        let before = rustix::process::getrlimit(Resource::Nofile);
        let limit = Rlimit { current: few, maximum: before.maximum };
        prlimit(Pid::from_raw(shim), Resource::Nofile, limit).expect("its limit");
        let first = sandbox.destroy().await;
        let is_gone = bed.provider().describe(sandbox.id()).await.expect("an answer").is_none();
        if first.is_ok() || is_gone {
            eventually("its processes are gone with it", async || has_ended(agent)).await;
        }
        if let Err(error) = first {
            // Whatever could not be done is done by the next one.
            let second = bed.provider().destroy(sandbox.id()).await;
            assert!(second.is_ok(), "first {error:?}, then {second:?}");
        }
        eventually("nobody of it is left", async || has_ended(agent)).await;
        bed.assert_empty("after one without descriptors").await;
    }
}
