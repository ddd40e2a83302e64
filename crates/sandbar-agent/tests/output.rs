//! What a command prints arrives whole, in time, and before its end.

mod support;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use sandbar_wire::envd::{
    Code, ConnectRequest, ListResponse, ProcessEvent, ProcessSelector, RpcError, Signal,
};
use support::{Agent, LIMIT, eventually_async, run, shell, with_marker};

#[test]
fn both_streams_and_the_code_arrive() {
    let agent = Agent::start();
    let output = run(agent.run("echo out; echo err >&2; exit 3"));
    assert_eq!((output.text(), output.stderr.as_slice()), ("out\n", &b"err\n"[..]));
    assert_eq!((output.end.exit_code, output.end.exited), (3, true));
    assert_eq!(output.end.error.as_deref(), Some("exit status 3"));
    let output = run(agent.run("true"));
    assert_eq!(
        (output.end.exit_code, output.end.error, output.end.status.as_str()),
        (0, None, "exit status 0")
    );
}

#[test]
fn output_is_complete_two_hundred_times() {
    let agent = Agent::start();
    run(async {
        for round in 0..200 {
            let output = agent.run("seq 1 5000").await;
            assert!(
                output.text().ends_with("\n4999\n5000\n") && output.text().lines().count() == 5000,
                "{round}"
            );
        }
    });
}

#[test]
fn every_byte_arrives_unchanged() {
    let agent = Agent::start();
    let script = r#"for i in $(seq 0 255); do printf "\\x$(printf %x $i)"; done"#;
    assert_eq!(run(agent.run(script)).stdout, (0..=255).collect::<Vec<u8>>());
}

#[test]
fn a_character_that_is_split_between_chunks_is_kept() {
    let agent = Agent::start();
    let output =
        run(agent.run(r"head -c 65535 /dev/zero | tr '\0' a; printf '\xe2'; sleep 0.05; printf '\x82\xac'"));
    assert!(output.text().ends_with("a€"));
}

#[test]
fn much_output_is_intact() {
    let agent = Agent::start();
    let output = run(agent.run("head -c 50000000 /dev/zero; echo end >&2"));
    assert_eq!(output.stdout.len(), 50_000_000);
    assert_eq!(output.stderr, b"end\n");
}

#[test]
fn a_signal_is_reported_as_such() {
    let agent = Agent::start();
    let output = run(agent.run("kill -KILL $$"));
    assert_eq!((output.end.exit_code, output.end.exited, output.end.signal), (-1, false, Some(9)));
    assert_eq!(output.end.status, "signal: killed");
    assert_eq!(output.end.error.as_deref(), Some("signal: killed"));
}

#[test]
fn a_descendant_that_holds_the_pipe_costs_a_bounded_grace() {
    let agent = Agent::start();
    run(async {
        let begin = Instant::now();
        let output = agent.run("sleep 4201 & echo started; exit 7").await;
        assert_eq!((output.text(), output.end.exit_code), ("started\n", 7));
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
        assert_eq!(with_marker("4201").len(), 1, "the detached child lives on");
    });
    drop(agent);
    support::eventually("the agent's end is its children's", || with_marker("4201").is_empty());
}

#[test]
fn a_descendant_that_goes_on_writing_is_not_waited_for_nor_broken() {
    let agent = Agent::start();
    run(async {
        let file = agent.home_path("alive");
        let script =
            format!("(while echo x; do sleep 0.01; done; echo broken > {0}) & exit 5", file.display());
        let begin = Instant::now();
        let output = agent.run(&script).await;
        assert_eq!(output.end.exit_code, 5);
        assert!(begin.elapsed() < Duration::from_secs(2));
        let until = Instant::now() + Duration::from_millis(500);
        eventually_async("half a second passes", || Instant::now() > until).await;
        assert!(!file.exists(), "its pipe is still read");
    });
}

#[test]
fn a_late_writer_within_the_grace_is_heard() {
    let agent = Agent::start();
    assert_eq!(run(agent.run("(sleep 0.1; echo late) & exit 0")).text(), "late\n");
}

#[test]
fn start_is_first_and_others_can_join() {
    let agent = Agent::start();
    run(async {
        let mut first = agent.shell("echo one; read x < <(sleep 0.3); echo two").await;
        first.until("one").await;
        let request = ConnectRequest { process: ProcessSelector::pid(first.pid) };
        let mut second = agent.stream("process.Process/Connect", &request, &[]).await;
        assert_eq!(second.event().await.unwrap(), Some(ProcessEvent::Start { pid: first.pid }));
        let second = support::Running { pid: first.pid, stream: second };
        let pid = first.pid;
        assert_eq!(second.output().await.unwrap().text(), "two\n", "live output only");
        assert_eq!(first.output().await.unwrap().text(), "two\n");
        let mut late = agent.stream("process.Process/Connect", &request, &[]).await;
        assert_eq!(
            late.event().await.unwrap(),
            Some(ProcessEvent::Start { pid }),
            "the end is kept for a while"
        );
        assert!(matches!(late.event().await.unwrap(), Some(ProcessEvent::End(end)) if end.exited));
        assert_eq!(late.event().await, Ok(None));
    });
}

#[test]
fn a_client_that_leaves_does_not_end_the_command() {
    let agent = Agent::start();
    run(async {
        let mut request = shell("yes | head -c 3000000; echo done > finished");
        request.tag = Some("mine".into());
        let running = agent.start_process(&request, &[]).await.unwrap();
        drop(running);
        eventually_async("it finishes unread", || agent.home_path("finished").exists()).await;
        let select = ConnectRequest { process: ProcessSelector::tag("mine") };
        let mut late = agent.stream("process.Process/Connect", &select, &[]).await;
        assert!(matches!(late.event().await, Ok(Some(ProcessEvent::Start { .. }))));
    });
}

#[test]
fn list_shows_what_runs() {
    let agent = Agent::start();
    run(async {
        let mut request = shell("echo up; sleep 4202");
        request.tag = Some("t".into());
        let mut running = agent.start_process(&request, &[]).await.unwrap();
        running.until("up").await;
        let list: ListResponse = agent.process("List", &serde_json::json!({})).await.unwrap();
        assert_eq!(list.processes.len(), 1);
        assert_eq!((list.processes[0].pid, list.processes[0].tag.as_deref()), (running.pid, Some("t")));
        assert_eq!(list.processes[0].config, request.process);
        let kill = serde_json::json!({"process": {"tag": "t"}, "signal": Signal::KILL});
        agent.process::<serde_json::Value>("SendSignal", &kill).await.unwrap();
        running.output().await.unwrap();
        let list: ListResponse = agent.process("List", &serde_json::json!({})).await.unwrap();
        assert!(list.processes.is_empty());
    });
}

#[test]
fn an_unknown_process_is_not_found_everywhere() {
    let agent = Agent::start();
    run(async {
        let text = "process with pid 4000000 not found";
        let pid = serde_json::json!({"process": {"pid": 4_000_000}, "signal": 9, "input": {"stdin": ""}});
        for method in ["SendSignal", "SendInput", "CloseStdin", "Update"] {
            let error = agent.process::<serde_json::Value>(method, &pid).await.unwrap_err();
            assert_eq!(error, RpcError::new(Code::NotFound, text), "{method}");
        }
        let mut stream = agent.stream("process.Process/Connect", &pid, &[]).await;
        assert_eq!(stream.event().await, Err(RpcError::new(Code::NotFound, text)));
    });
}

#[test]
fn silence_is_broken_by_keepalives() {
    let agent = Agent::start();
    let output = run(async {
        let headers = [("keepalive-ping-interval", "1")];
        agent.start_process(&shell("sleep 2.5"), &headers).await.unwrap().output().await.unwrap()
    });
    assert_eq!(output.keepalives, 2);
}

#[test]
fn a_single_slow_reader_sets_the_pace() {
    let agent = Agent::start();
    run(async {
        let progress = agent.home_path("progress");
        let script = "for i in $(seq 40); do head -c 1000000 /dev/zero; echo $i > progress; done";
        let running = agent.shell(script).await;
        eventually_async("something is written", || progress.exists()).await;
        let until = Instant::now() + Duration::from_millis(500);
        eventually_async("half a second passes", || Instant::now() > until).await;
        let written: u32 = std::fs::read_to_string(&progress).unwrap().trim().parse().unwrap_or(0);
        assert!(written < 20, "the command waits for its reader: {written}");
        assert_eq!(running.output().await.unwrap().stdout.len(), 40_000_000);
    });
}

#[test]
fn a_lone_reader_that_stalls_is_let_go_of_when_its_connection_ends() {
    let agent = Agent::start();
    run(async {
        let mut running = agent.shell("echo up; head -c 40000000 /dev/zero; echo done > finished").await;
        running.until("up").await;
        let until = Instant::now() + Duration::from_secs(2);
        eventually_async("two seconds pass", || Instant::now() > until).await;
        assert!(!agent.home_path("finished").exists(), "the command waits");
        drop(running);
        eventually_async("it goes on unread", || agent.home_path("finished").exists()).await;
    });
}

#[test]
fn a_stalled_reader_gives_way_to_another() {
    let agent = Agent::start();
    run(async {
        let mut stalled =
            agent.shell("echo up; read x < <(sleep 1); head -c 40000000 /dev/zero; echo end >&2").await;
        stalled.until("up").await;
        let until = Instant::now() + Duration::from_secs(2);
        eventually_async("it stalls alone", || Instant::now() > until).await;
        let request = ConnectRequest { process: ProcessSelector::pid(stalled.pid) };
        let stream = agent.stream("process.Process/Connect", &request, &[]).await;
        let mut second = support::Running { pid: stalled.pid, stream };
        assert!(matches!(second.stream.event().await, Ok(Some(ProcessEvent::Start { .. }))));
        let output = second.output().await.unwrap();
        assert!(output.stderr == b"end\n" && !output.stdout.is_empty());
        let error = loop {
            match stalled.stream.event().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it kept up"),
                Err(error) => break error,
            }
        };
        assert_eq!((error.code, error.reason.as_deref()), (Code::ResourceExhausted, Some("slow_reader")));
    });
}

#[test]
fn a_dead_subscriber_never_blocks_others() {
    let agent = Agent::start();
    run(async {
        let mut running = agent.shell("echo up; read x < <(sleep 0.3); head -c 40000000 /dev/zero").await;
        running.until("up").await;
        let request = ConnectRequest { process: ProcessSelector::pid(running.pid) };
        let mut dead = agent.stream("process.Process/Connect", &request, &[]).await;
        dead.event().await.unwrap();
        let begin = Instant::now();
        assert_eq!(running.output().await.unwrap().stdout.len(), 40_000_000);
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
        let error = loop {
            match dead.event().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it kept up"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.code, Code::ResourceExhausted);
    });
}

#[test]
fn a_connection_goes_on_whose_request_ended_after_its_message() {
    let agent = Agent::start();
    let mut stream = std::os::unix::net::UnixStream::connect(agent.socket()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let go = agent.home_path("go");
    let script = format!("echo up; until [ -e {} ]; do sleep 0.01; done; echo went", go.display());
    let message = serde_json::json!({
        "process": { "cmd": "/bin/bash", "args": ["-c", script] }, "stdin": false,
    })
    .to_string();
    let head = "POST /process.Process/Start HTTP/1.1\r\nhost: x\r\ncontent-type: application/connect+json\r\n\
                connect-protocol-version: 1\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut sent = format!("{head}{:x}\r\n\0", message.len() + 5).into_bytes();
    sent.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    sent.extend(format!("{message}\r\n").into_bytes());
    stream.write_all(&sent).unwrap();
    // The command runs, as its output in base 64 shows; only then the request ends, as with clients that write its last chunk on its own.
    read_until(&mut stream, "dXAK");
    stream.write_all(b"0\r\n\r\n").unwrap();
    std::fs::write(&go, "").unwrap();
    read_until(&mut stream, "\r\n0\r\n\r\n");
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    read_until(&mut stream, "204 No Content");
}

fn read_until(stream: &mut impl Read, wanted: &str) {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(wanted) {
        let mut piece = [0; 4096];
        let length = stream.read(&mut piece).unwrap();
        assert_ne!(length, 0, "closed after {:?}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&piece[..length]);
    }
}
