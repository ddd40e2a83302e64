//! How commands start, take input, and are ended.

mod support;

use std::time::{Duration, Instant};

use sandbar_wire::envd::{
    Code, ProcessEvent, ProcessInput, ProcessSelector, RpcError, SendInputRequest, reason,
};
use serde_json::{Value, json};
use support::{Agent, Running, eventually_async, is_root, run, shell, with_marker};

async fn signal(agent: &Agent, running: &Running, signal: &str) -> Result<Value, RpcError> {
    agent.process("SendSignal", &json!({"process": {"pid": running.pid}, "signal": signal})).await
}

async fn input(agent: &Agent, running: &Running, text: &str) -> Result<Value, RpcError> {
    let input = ProcessInput { stdin: Some(text.to_owned().into()), pty: None };
    let request = SendInputRequest { process: ProcessSelector::pid(running.pid), input };
    agent.process("SendInput", &request).await
}

#[test]
fn the_environment_is_made_not_inherited() {
    let agent = Agent::with(|config| {
        config.env.insert("SANDBOX_VAR".into(), "s".into());
        config.env.insert("BOTH".into(), "sandbox".into());
    });
    let mut request = shell("env; pwd; umask");
    request.process.envs.insert("BOTH".into(), "request".into());
    let output = run(async { agent.start_process(&request, &[]).await.unwrap().output().await.unwrap() });
    let home = agent.home();
    let home = home.to_str().unwrap();
    let lines: Vec<&str> = output.text().lines().collect();
    for wanted in [
        &format!("HOME={home}"),
        "USER=user",
        "LOGNAME=user",
        "SANDBOX_VAR=s",
        "BOTH=request",
        "E2B_SANDBOX=true",
        "E2B_SANDBOX_ID=i1",
        "E2B_TEMPLATE_ID=host",
        "SANDBAR=1",
        home,
        "0022",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ] {
        assert!(lines.contains(&wanted), "{wanted} in {lines:?}");
    }
    assert!(!output.text().contains("CARGO"), "nothing of the agent's own environment");
}

#[test]
fn a_command_runs_as_the_user_without_privileges() {
    let agent = Agent::start();
    let script = "id -u; grep -E 'Cap(Prm|Eff|Amb)|NoNewPrivs' /proc/self/status; ls /proc/self/fd | wc -l; \
                  ps -o sid= -p $$; echo $$";
    let output = run(agent.run(script));
    let lines: Vec<&str> = output.text().lines().map(str::trim).collect();
    assert_eq!(lines[0], support::user_ids().0.to_string());
    for line in &lines[1..4] {
        assert!(line.ends_with("0000000000000000"), "{line}");
    }
    assert!(lines[4].starts_with("NoNewPrivs:") && lines[4].ends_with('1'));
    assert_eq!(lines[5], "4", "three descriptors, and that of the listing");
    assert_eq!(lines[6], lines[7], "a session of its own");
    if is_root() {
        assert_eq!(run(agent.run("id -G")).text().trim(), "1000 4242");
    }
}

#[test]
fn stdin_is_empty_unless_asked_for() {
    let agent = Agent::start();
    run(async {
        let running = agent.shell("readlink /proc/self/fd/0; cat").await;
        assert_eq!(running.output().await.unwrap().text(), "/dev/null\n");
        let running = agent.shell("sleep 4203").await;
        let error = input(&agent, &running, "x").await.unwrap_err();
        assert_eq!(
            error,
            RpcError::new(Code::Internal, "error writing to stdin: stdin not enabled or closed")
        );
    });
}

#[test]
fn input_is_read_until_it_is_closed() {
    let agent = Agent::start();
    run(async {
        // It must outlive the second closing: a process that is gone can't be named.
        let mut request = shell("cat; until [ -e asked-twice ]; do sleep 0.01; done; echo end");
        request.stdin = None;
        let running = agent.start_process(&request, &[]).await.unwrap();
        input(&agent, &running, "one\n").await.unwrap();
        input(&agent, &running, "two\n").await.unwrap();
        for _ in 0..2 {
            let close = json!({"process": {"pid": running.pid}});
            agent.process::<Value>("CloseStdin", &close).await.unwrap();
        }
        assert!(input(&agent, &running, "three").await.is_err());
        std::fs::write(agent.home_path("asked-twice"), "").unwrap();
        assert_eq!(running.output().await.unwrap().text(), "one\ntwo\nend\n");
    });
}

#[test]
fn streamed_input_arrives_in_order() {
    use sandbar_wire::envd::{Channel, SelectRequest, StreamInput, input_frame, message_frame};
    let agent = Agent::start();
    run(async {
        let mut request = shell("md5sum");
        request.stdin = Some(true);
        let running = agent.start_process(&request, &[]).await.unwrap();
        let start = StreamInput::Start(SelectRequest { process: ProcessSelector::pid(running.pid) });
        let mut body = message_frame(&start).to_vec();
        for chunk in 0..100u8 {
            body.extend_from_slice(&input_frame(Channel::Stdout, &vec![chunk; 20_000]));
        }
        let headers = [("content-type", "application/connect+json")];
        let answer = agent.call("POST", "/process.Process/StreamInput", &headers, body).await;
        assert_eq!(answer.bytes(), b"\0\0\0\0\x02{}\x02\0\0\0\x02{}");
        agent.process::<Value>("CloseStdin", &json!({"process": {"pid": running.pid}})).await.unwrap();
        let all: Vec<u8> = (0..100u8).flat_map(|chunk| vec![chunk; 20_000]).collect();
        std::fs::write(agent.home_path("all"), all).unwrap();
        let expected = agent.run("md5sum < all").await;
        assert_eq!(running.output().await.unwrap().stdout, expected.stdout);
    });
}

#[test]
fn what_cannot_start_says_why() {
    let agent = Agent::start();
    run(async {
        std::fs::write(agent.home_path("plain"), "no program").unwrap();
        let fail = async |cmd: &str, cwd: Option<&str>| {
            let mut request = shell("true");
            request.process.cmd = cmd.to_owned();
            request.process.cwd = cwd.map(str::to_owned);
            let error = agent.start_process(&request, &[]).await.err().expect("it can't start");
            assert_eq!(error.code, Code::InvalidArgument);
            (error.message, error.reason.unwrap_or_default())
        };
        let missing = fail("/no/such", None).await;
        assert_eq!(
            missing,
            ("start `/no/such`: no such file or directory".into(), reason::PROGRAM_NOT_FOUND.into())
        );
        assert_eq!(fail("no-such-program", None).await.1, reason::PROGRAM_NOT_FOUND);
        let denied = fail("./plain", None).await;
        assert_eq!(
            denied,
            ("start `./plain`: permission denied".into(), reason::PROGRAM_NOT_EXECUTABLE.into())
        );
        assert_eq!(fail("./plain/x", None).await.1, reason::PROGRAM_NOT_FOUND);
        let cwd = fail("true", Some("/no/such")).await;
        assert_eq!(cwd, ("cwd '/no/such' does not exist".into(), reason::BAD_CWD.into()));
        assert_eq!(fail("true", Some("plain")).await.1, reason::BAD_CWD);
        // A variable that no program could have is refused, as creations refuse it.
        for name in ["A=B", "", "A\0"] {
            let mut request = shell("true");
            request.process.envs.insert(name.to_owned(), "c".to_owned());
            let error = agent.start_process(&request, &[]).await.err().expect("it can't start");
            assert_eq!(error.code, Code::InvalidArgument, "{name:?}: {}", error.message);
        }
        let list: Value = agent.process("List", &json!({})).await.unwrap();
        assert_eq!(list, json!({}));
    });
}

#[test]
fn working_folders_are_resolved() {
    let agent = Agent::start();
    std::fs::create_dir(agent.home_path("sub")).unwrap();
    run(async {
        for (cwd, wanted) in [("sub", "sub"), ("~/sub", "sub"), ("~", ""), ("", "")] {
            let mut request = shell("pwd");
            request.process.cwd = Some(cwd.into());
            let output = agent.start_process(&request, &[]).await.unwrap().output().await.unwrap();
            let wanted = if wanted.is_empty() { agent.home() } else { agent.home_path(wanted) };
            assert_eq!(output.text().trim(), wanted.to_str().unwrap(), "{cwd}");
        }
    });
}

#[test]
fn users_are_looked_up() {
    let agent = Agent::start();
    run(async {
        let as_user = [("authorization", "Basic bm9ib2R5LWhlcmU6")];
        let error = agent.start_process(&shell("true"), &as_user).await.err().unwrap();
        assert_eq!(
            (error.code, error.message.as_str()),
            (Code::Unauthenticated, "invalid username: 'nobody-here'")
        );
        let as_root = [("authorization", "Basic cm9vdDo=")];
        let root = agent.start_process(&shell("id -u"), &as_root).await;
        if is_root() {
            assert_eq!(root.unwrap().output().await.unwrap().text(), "0\n");
        } else {
            let error = root.err().unwrap();
            assert_eq!(error.code, Code::PermissionDenied);
            assert!(error.message.contains("sandbar doctor"), "{}", error.message);
        }
    });
}

#[test]
fn a_kill_ends_the_whole_tree() {
    let agent = Agent::start();
    run(async {
        let script = "sleep 4301 & (setsid sleep 4302 &) ; setsid sh -c 'sleep 4303 & sleep 4304' & \
                      (( (trap '' TERM; sleep 4305) & ) & ) ; echo up; wait; sleep 4306";
        let mut running = agent.shell(script).await;
        running.until("up").await;
        let alive = || (4301..=4305).map(|n| with_marker(&n.to_string()).len()).sum::<usize>();
        eventually_async("all run", || (4301..=4305).all(|n| !with_marker(&n.to_string()).is_empty())).await;
        signal(&agent, &running, "SIGNAL_SIGKILL").await.unwrap();
        let end = running.output().await.unwrap().end;
        assert_eq!((end.exit_code, end.signal), (-1, Some(9)));
        eventually_async("none is left", || alive() == 0).await;
    });
}

#[test]
fn term_reaches_the_tree_and_can_be_handled() {
    let agent = Agent::start();
    run(async {
        let script = "trap 'echo bye; exit 9' TERM; sleep 4311 & echo up; wait";
        let mut running = agent.shell(script).await;
        running.until("up").await;
        signal(&agent, &running, "SIGNAL_SIGTERM").await.unwrap();
        let output = running.output().await.unwrap();
        assert_eq!((output.text(), output.end.exit_code), ("bye\n", 9));
        eventually_async("the child is gone too", || with_marker("4311").is_empty()).await;
    });
}

#[test]
fn other_signals_go_to_the_session() {
    let agent = Agent::start();
    run(async {
        let script =
            "trap 'echo int; exit 4' INT; (setsid sleep 4321 &); echo up; while :; do sleep 0.02; done";
        let mut running = agent.shell(script).await;
        running.until("up").await;
        // Before that it is `setsid`, which may not be in a session of its own yet.
        let sleeps =
            |pid: &u32| std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name == b"sleep\n");
        eventually_async("the detached one runs", || with_marker("4321").iter().any(sleeps)).await;
        signal(&agent, &running, "SIGNAL_SIGINT").await.unwrap();
        assert_eq!(running.output().await.unwrap().end.exit_code, 4);
        assert_eq!(with_marker("4321").len(), 1, "what was detached is not interrupted");
        let running = agent.shell("sleep 4322").await;
        let error = signal(&agent, &running, "SIGNAL_NONSENSE").await.unwrap_err();
        assert_eq!(error.code, Code::Unimplemented);
    });
}

#[test]
fn the_time_limit_ends_the_tree_and_the_stream() {
    let agent = Agent::start();
    run(async {
        let begin = Instant::now();
        let script = shell("echo begun; (setsid sleep 4331 &); sleep 4332");
        let mut running = agent.start_process(&script, &[("connect-timeout-ms", "500")]).await.unwrap();
        running.until("begun").await;
        let error = running.stream.event().await.unwrap_err();
        assert_eq!(error.code, Code::DeadlineExceeded);
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
        eventually_async("nothing is left", || {
            with_marker("4331").is_empty() && with_marker("4332").is_empty()
        })
        .await;
        let list: Value = agent.process("List", &json!({})).await.unwrap();
        assert_eq!(list, json!({}));
    });
}

#[test]
fn a_limit_on_connect_ends_only_that_stream() {
    let agent = Agent::start();
    run(async {
        let mut running = agent.shell("echo up; sleep 1; echo more").await;
        running.until("up").await;
        let select = json!({"process": {"pid": running.pid}});
        let mut other =
            agent.stream("process.Process/Connect", &select, &[("connect-timeout-ms", "100")]).await;
        assert!(matches!(other.event().await, Ok(Some(ProcessEvent::Start { .. }))));
        assert_eq!(other.event().await.unwrap_err().code, Code::DeadlineExceeded);
        assert_eq!(running.output().await.unwrap().text(), "more\n");
    });
}

#[test]
fn a_terminal_has_a_size_and_takes_input() {
    let agent = Agent::start();
    run(async {
        let mut request =
            shell("tty; stty size; trap 'stty size' WINCH; echo TERM=$TERM; read line; echo got $line");
        request.process.envs.insert("TERM".into(), "xterm-256color".into());
        request.pty = Some(serde_json::from_value(json!({"size": {"cols": 80, "rows": 24}})).unwrap());
        let mut running = agent.start_process(&request, &[]).await.unwrap();
        let text = running.until("TERM=").await;
        assert!(text.contains("/dev/pts/") && text.contains("24 80"), "{text}");
        let select = json!({"pid": running.pid});
        let size = json!({"process": select, "pty": {"size": {"cols": 100, "rows": 30}}});
        agent.process::<Value>("Update", &size).await.unwrap();
        assert!(input(&agent, &running, "no").await.is_err(), "stdin of a terminal");
        // Before the line, which ends it.
        let close = agent.process::<Value>("CloseStdin", &json!({"process": select})).await.unwrap_err();
        assert_eq!(close.code, Code::Unknown);
        let line = json!({"process": select, "input": {"pty": "aGVsbG8K"}});
        agent.process::<Value>("SendInput", &line).await.unwrap();
        let output = running.output().await.unwrap();
        let text = String::from_utf8_lossy(&output.pty);
        assert!(text.contains("30 100") && text.contains("got hello"), "{text}");
        assert_eq!(output.end.exit_code, 0);
    });
}

#[test]
fn an_interrupt_reaches_the_terminals_foreground() {
    let agent = Agent::start();
    run(async {
        let mut request =
            shell("sh -c 'trap \"echo caught; exit 6\" INT; echo up; while :; do sleep 0.02; done'");
        request.pty = Some(serde_json::from_value(json!({})).unwrap());
        let mut running = agent.start_process(&request, &[]).await.unwrap();
        running.until("up").await;
        signal(&agent, &running, "SIGNAL_SIGINT").await.unwrap();
        let output = running.output().await.unwrap();
        assert!(String::from_utf8_lossy(&output.pty).contains("caught"));
    });
}

#[test]
fn resizing_without_a_terminal_is_an_error() {
    let agent = Agent::start();
    run(async {
        let running = agent.shell("sleep 4341").await;
        let size = json!({"process": {"pid": running.pid}, "pty": {"size": {"cols": 1, "rows": 1}}});
        let error = agent.process::<Value>("Update", &size).await.unwrap_err();
        assert_eq!(error, RpcError::new(Code::Internal, "tty not assigned to process"));
    });
}

#[test]
fn limits_apply_to_commands() {
    let agent = Agent::with(|config| {
        let resource = sandbar_engine::process::Resource::Nofile;
        config.rlimits = vec![sandbar_engine::process::Rlimit { resource, soft: 77, hard: 88 }];
    });
    assert_eq!(run(agent.run("ulimit -Sn; ulimit -Hn")).text(), "77\n88\n");
}

#[test]
fn damage_to_a_stub_is_not_taken_for_success() {
    let agent = Agent::start();
    run(async {
        let mut running = agent.shell("echo $PPID; sleep 4351").await;
        let stub: i32 = running.until("\n").await.trim().parse().unwrap();
        let stub = rustix::process::Pid::from_raw(stub).unwrap();
        rustix::process::kill_process(stub, rustix::process::Signal::KILL).unwrap();
        let end = running.output().await.unwrap().end;
        assert_eq!((end.exit_code, end.exited, end.cause.as_deref()), (137, false, Some("unknown")));
        let orphans = with_marker("4351");
        for pid in orphans {
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    });
}

#[test]
fn standard_streams_can_be_opened_by_name() {
    let agent = Agent::start();
    run(async {
        let output = agent.run("echo x > /dev/stderr; echo y > /dev/stdout; cat < /dev/stdin").await;
        assert_eq!((output.text(), output.stderr.as_slice(), output.end.exit_code), ("y\n", &b"x\n"[..], 0));
        let mut request = shell("cat /dev/stdin");
        request.stdin = Some(true);
        let running = agent.start_process(&request, &[]).await.unwrap();
        input(&agent, &running, "typed").await.unwrap();
        let select = json!({"process": {"pid": running.pid}});
        let _: Value = agent.process("CloseStdin", &select).await.unwrap();
        assert_eq!(running.output().await.unwrap().text(), "typed");
        let mut request = shell("echo tty > /dev/tty; echo name > $(tty); echo out > /dev/stdout");
        request.pty = serde_json::from_value(json!({"size": {"cols": 80, "rows": 24}})).unwrap();
        let output = agent.start_process(&request, &[]).await.unwrap().output().await.unwrap();
        assert_eq!(String::from_utf8_lossy(&output.pty), "tty\r\nname\r\nout\r\n");
    });
}
