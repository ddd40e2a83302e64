//! The agent goes on serving, and can end everything, when something inside has used up what there is, or has laid
//! hands on what the agent needs.

mod support;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use sandbar_wire::envd::{
    Code, Empty, PathRequest, ProcessEvent, ProcessSelector, RpcError, SendSignalRequest, Signal, reason,
};
use serde_json::{Value, json};
use support::program::{As, Started};
use support::{Agent, eventually_async, is_root, run, shell, with_marker};

fn ask(agent: &Agent, request: &Value) -> Value {
    let control = agent.control();
    rustix::net::send(&control, request.to_string().as_bytes(), rustix::net::SendFlags::NOSIGNAL).unwrap();
    let mut packet = vec![0; 64 << 10];
    let (_, count) = rustix::net::recv(&control, &mut *packet, rustix::net::RecvFlags::empty()).unwrap();
    serde_json::from_slice(&packet[..count]).unwrap()
}

fn kill(pid: u32) -> SendSignalRequest {
    SendSignalRequest { process: ProcessSelector::pid(pid), signal: Signal::KILL }
}

#[test]
fn where_no_process_can_be_made_everything_can_be_ended() {
    let started = Started::new(As::User, |_| {});
    let agent = &started.agent;
    run(async {
        let killed = agent.shell("sleep 4501 & sleep 4501; :").await;
        let limit = [("connect-timeout-ms", "1500")];
        let timed = agent.start_process(&shell("sleep 4502 & sleep 4502; :"), &limit).await.unwrap();
        let swept = agent.shell("sleep 4503 & sleep 4503; :").await;
        eventually_async("all run", || with_marker("sleep\x00450").len() == 6).await;
        started.forbid_processes();

        let refused = agent.get("/files?path=x").await;
        assert_eq!(refused.status, 507, "{}", refused.text());
        assert!(refused.text().contains("limit on processes"), "{}", refused.text());
        let path = PathRequest { path: "x".into(), ..PathRequest::default() };
        let error: RpcError = agent.files::<Value>("Stat", &path).await.unwrap_err();
        assert_eq!(
            (error.code, error.reason.as_deref()),
            (Code::ResourceExhausted, Some(reason::PROCESS_LIMIT))
        );
        let error = agent.start_process(&shell("true"), &[]).await.err().unwrap();
        assert_eq!(
            (error.code, error.reason.as_deref()),
            (Code::ResourceExhausted, Some(reason::PROCESS_LIMIT))
        );
        assert!(error.message.contains("limit on processes"), "{error}");
        assert_eq!(agent.get("/metrics").await.status, 200);
        assert_eq!(agent.get("/health").await.status, 204);

        let _: Empty = agent.process("SendSignal", &kill(killed.pid)).await.unwrap();
        assert_eq!(killed.output().await.unwrap().end.signal, Some(9));
        assert_eq!(timed.output().await.unwrap_err().code, Code::DeadlineExceeded);
        eventually_async("both trees are gone", || with_marker("sleep\x00450").len() == 2).await;
        let answer = ask(agent, &json!({"v": 1, "op": "kill_all", "signal": 9}));
        assert_eq!(answer["ok"], json!(true), "{answer}");
        assert_eq!(swept.output().await.unwrap().end.signal, Some(9));
        eventually_async("nothing is left", || with_marker("sleep\x00450").is_empty()).await;
        assert_eq!(ask(agent, &json!({"v": 1, "op": "shutdown"})), json!({"ok": true}));
    });
    let end = started.child.wait_event(Duration::from_secs(10)).unwrap();
    assert_eq!(end, sandbar_engine::process::Event::Exited(0));
}

#[test]
fn commands_are_chosen_before_the_agent_when_memory_runs_out() {
    let started = Started::new(As::User, |_| {});
    let score = || -> i32 {
        let text = std::fs::read_to_string(format!("/proc/{}/oom_score_adj", started.pid)).unwrap();
        text.trim().parse().unwrap()
    };
    let before = score();
    let commands: i32 = run(async {
        let output = started.agent.run("cat /proc/self/oom_score_adj").await;
        output.text().trim().parse().unwrap()
    });
    assert!(commands >= 500 && commands > before, "{commands}");
    assert_eq!(score(), before, "its own is as it was");
}

/// A tree that is deeper than a path can name, owned as what `user` makes.
fn deep(home: &std::path::Path) {
    use rustix::fs::{Gid, Mode, OFlags, Uid, fchown, mkdirat, open, openat};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let (uid, gid) = support::user_ids();
    let mut folder = open(home, flags, Mode::empty()).unwrap();
    for level in 0..3000 {
        let name = if level == 0 { c"deep" } else { c"d" };
        mkdirat(&folder, name, Mode::RWXU).unwrap();
        folder = openat(&folder, name, flags, Mode::empty()).unwrap();
        fchown(&folder, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).unwrap();
    }
}

#[test]
fn a_tree_of_any_depth_is_no_end() {
    let started = Started::new(As::User, |_| {});
    let agent = &started.agent;
    run(async {
        deep(&agent.home());
        let at = agent.home_path("deep").to_str().unwrap().to_owned();
        // What a path can't name any more may be an error, said as such.
        let list = json!({"path": at, "depth": 1_000_000});
        let _ = agent.files::<Value>("ListDir", &list).await;
        let watch = json!({"path": at, "recursive": true});
        let _ = agent.files::<Value>("CreateWatcher", &watch).await;
        let answer: Result<Value, _> = agent.files("Remove", &json!({"path": at})).await;
        assert_eq!(answer, Ok(json!({})));
        assert!(!agent.home_path("deep").exists());
        assert_eq!(agent.get("/health").await.status, 204);
    });
}

fn parent_of(pid: u32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
    line.trim().parse().unwrap()
}

fn signal(pid: i32, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
}

#[test]
fn a_stopped_stub_does_not_hold_up_a_time_limit() {
    let agent = Agent::start();
    run(async {
        let limit = [("connect-timeout-ms", "700")];
        let running = agent.start_process(&shell("sleep 4511; :"), &limit).await.unwrap();
        signal(parent_of(running.pid), rustix::process::Signal::STOP);
        let begin = Instant::now();
        assert_eq!(running.output().await.unwrap_err().code, Code::DeadlineExceeded);
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        eventually_async("the tree is gone", || with_marker("4511").is_empty()).await;
    });
}

/// An agent that is PID 1, or `None` where this machine doesn't let us make namespaces.
fn init() -> Option<Started> {
    let started = Started::new(As::Init, |_| {});
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        if ask(&started.agent, &json!({"v": 1, "op": "ping"}))["pid"] == json!(1) {
            return Some(started);
        }
        assert!(Instant::now() < end);
    }
}

fn can_be_init() -> bool {
    let mut unshare = std::process::Command::new("unshare");
    unshare.args(["--pid", "--fork", "--mount-proc", "--mount"]);
    if !is_root() {
        let (uid, gid) = support::user_ids();
        unshare.args([format!("--map-user={uid}"), format!("--map-group={gid}")]);
    }
    let works = unshare.arg("true").status().is_ok_and(|status| status.success());
    if !works {
        eprintln!("skipped: `unshare --pid` does not work here");
    }
    works
}

#[test]
fn who_kills_its_stub_is_ended_with_all_it_started() {
    if !can_be_init() {
        return;
    }
    let started = init().unwrap();
    let agent = &started.agent;
    run(async {
        let other = agent.shell("sleep 4522; :").await;
        // The shell's parent, as the sandbox counts, is the stub; only root may kill it where there are more ids.
        let mut request = shell("trap '' TERM; (setsid sleep 4521 &); echo up; read x; sleep 4521");
        request.stdin = Some(true);
        let mut running = agent.start_process(&request, &[]).await.unwrap();
        running.until("up").await;
        eventually_async("it runs", || with_marker("sleep\x004521").len() == 1).await;
        let shell = with_marker("trap").into_iter().find(|pid| parent_of(*pid) > 1).unwrap();
        signal(parent_of(shell), rustix::process::Signal::KILL);
        let end = running.output().await.unwrap().end;
        assert_eq!((end.exit_code, end.cause.as_deref()), (137, Some("unknown")));
        eventually_async("its processes are gone", || with_marker("4521").is_empty()).await;
        assert_eq!(with_marker("sleep\x004522").len(), 1, "another command's are not");
        let _: Empty = agent.process("SendSignal", &kill(other.pid)).await.unwrap();
    });
}

#[test]
fn users_are_known_without_their_files_and_odd_ones_hold_nothing_up() {
    let agent = Agent::start();
    let etc = agent.folder.path().join("etc");
    run(async {
        for name in ["passwd", "group"] {
            std::fs::remove_file(etc.join(name)).unwrap();
        }
        let mut request = shell("id -u");
        request.process.cwd = Some("/".into());
        let expected = if support::user_ids().0 == 1000 { Ok("1000\n") } else { Err(Code::PermissionDenied) };
        let outcome = async || match agent.start_process(&request, &[]).await {
            Ok(running) => Ok(running.output().await.unwrap().text().to_owned()),
            Err(error) => Err(error.code),
        };
        assert_eq!(outcome().await.as_deref(), expected.as_ref().map(|text| *text));
        let fifo = etc.join("passwd");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o644),
            0,
        )
        .unwrap();
        assert_eq!(outcome().await.as_deref(), expected.as_ref().map(|text| *text));
        assert_eq!(agent.get("/health").await.status, 204);
    });
}

#[test]
fn a_log_that_nobody_reads_is_no_end() {
    let mut started = Started::new(As::User, |config| {
        config.sudo_socket = Some("/no/such/folder/sudo.sock".into());
    });
    drop(started.child.stderr.take());
    run(async {
        let mut running = started.agent.shell("echo up; sleep 4531").await;
        assert_eq!(running.until("up").await, "up\n");
        // A packet that is no request, a connection that is cut: whatever is logged has nowhere to go.
        let control = started.agent.control();
        let _ = rustix::net::send(control.as_fd(), &[0; 100], rustix::net::SendFlags::NOSIGNAL);
        let _: Empty = started.agent.process("SendSignal", &kill(running.pid)).await.unwrap();
        while !matches!(running.stream.event().await.unwrap(), None | Some(ProcessEvent::End(_))) {}
        assert_eq!(started.agent.get("/health").await.status, 204);
    });
}
