//! What the host side asks: health, metrics, settings, the control protocol, the deadline.

mod support;

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg};
use sandbar_agent::Outcome;
use sandbar_agent::config::Token;
use serde_json::{Value, json};
use support::{Agent, eventually, run, shell, with_marker};

#[test]
fn health_metrics_and_environment() {
    let agent = Agent::with(|config| {
        config.env.insert("A".into(), "1".into());
    });
    run(async {
        assert_eq!(agent.get("/health").await.status, 204);
        let metrics = agent.get("/metrics").await.json();
        for name in [
            "ts",
            "cpu_count",
            "mem_total",
            "mem_used",
            "mem_total_mib",
            "mem_used_mib",
            "disk_used",
            "disk_total",
        ] {
            assert!(metrics[name].as_f64().unwrap() > 0.0, "{name} in {metrics}");
        }
        let load = metrics["cpu_used_pct"].as_f64().unwrap();
        assert!((0.0..=100.0).contains(&load) && metrics["mem_cache"].is_u64());
        let envs = agent.get("/envs").await.json();
        assert_eq!((&envs["A"], &envs["E2B_SANDBOX"]), (&json!("1"), &json!("true")));
        assert_eq!(agent.get("/nothing").await.status, 404);
        assert_eq!(agent.call("DELETE", "/files", &[], "").await.status, 405);
        assert_eq!(agent.get("/process.Process/List").await.status, 405);
        let plain = agent.call("POST", "/process.Process/List", &[("content-type", "text/plain")], "").await;
        assert_eq!(plain.status, 415);
        let preflight = agent.call("OPTIONS", "/files", &[("access-control-request-headers", "x")], "").await;
        assert_eq!(
            (preflight.status, &preflight.headers["access-control-allow-origin"]),
            (204, &"*".parse().unwrap())
        );
    });
}

#[test]
fn settings_are_replaced_in_order() {
    let agent = Agent::with(|config| {
        config.env.insert("A".into(), "1".into());
    });
    std::fs::create_dir(agent.home_path("w")).unwrap();
    run(async {
        let init = async |body: Value| agent.call("POST", "/init", &[], body.to_string()).await;
        let body = json!({
            "envVars": {"B": "2"}, "timestamp": "2026-01-01T00:00:02Z", "defaultWorkdir": agent.home_path("w"),
            "hyperloopIP": "ignored", "lifecycleID": "ignored",
        });
        let answer = init(body).await;
        assert_eq!((answer.status, &answer.headers["x-envd-version"]), (204, &"0.6.13".parse().unwrap()));
        let output = agent.run("echo \"A=$A B=$B\"; pwd").await;
        assert_eq!(output.text(), format!("A= B=2\n{}\n", agent.home_path("w").display()));
        let old = json!({"envVars": {"B": "old"}, "timestamp": "2026-01-01T00:00:01Z"});
        assert_eq!(init(old).await.status, 204);
        assert_eq!(agent.run("echo $B").await.text(), "2\n");
        assert_eq!(init(json!({"volumeMounts": [{"path": "/x"}]})).await.status, 501);
        assert_eq!(init(json!({"accessToken": "t"})).await.status, 204);
        assert_eq!(agent.get("/envs").await.status, 401);
        assert_eq!(init(json!({"accessToken": "other"})).await.status, 401);
        assert_eq!(init(json!({"accessToken": "t", "envVars": {}})).await.status, 204);
    });
}

#[test]
fn the_token_guards_everything_but_health() {
    let agent = Agent::with(|config| config.access_token = Some(Token("secret".into())));
    run(async {
        assert_eq!(agent.get("/health").await.status, 204);
        for (method, uri) in [
            ("GET", "/metrics"),
            ("GET", "/envs"),
            ("POST", "/process.Process/List"),
            ("POST", "/files/compose"),
        ] {
            for headers in [&[][..], &[("x-access-token", "wrong")]] {
                let answer = agent.call(method, uri, headers, "").await;
                assert_eq!((answer.status, &answer.json()["code"]), (401, &json!(401)), "{uri}");
            }
        }
        let headers = [("x-access-token", "secret"), ("content-type", "application/json")];
        assert_eq!(agent.call("POST", "/process.Process/List", &headers, "{}").await.status, 200);
    });
}

fn ask(control: &OwnedFd, request: &Value) -> (Value, Vec<OwnedFd>) {
    rustix::net::send(control, request.to_string().as_bytes(), SendFlags::NOSIGNAL).unwrap();
    let mut packet = vec![0; 64 << 10];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [std::io::IoSliceMut::new(&mut packet)];
    let count = recvmsg(control, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC).unwrap().bytes;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    (serde_json::from_slice(&packet[..count]).unwrap(), descriptors)
}

#[test]
fn the_control_protocol_answers() {
    let agent = Agent::start();
    let control = agent.control();
    let (pong, none) = ask(&control, &json!({"v": 1, "op": "ping"}));
    assert_eq!((&pong["ok"], &pong["processes"], none.len()), (&json!(true), &json!(0), 0));
    assert_eq!(pong["version"], env!("CARGO_PKG_VERSION"));
    let (listeners, descriptors) = ask(&control, &json!({"v": 1, "op": "listeners"}));
    assert_eq!(listeners["names"], json!(["agent", "ctl"]));
    let kinds: Vec<_> =
        descriptors.iter().map(|d| rustix::net::sockopt::socket_type(d.as_fd()).unwrap()).collect();
    assert_eq!(kinds, [rustix::net::SocketType::STREAM, rustix::net::SocketType::SEQPACKET]);
    let (answer, descriptors) = ask(&control, &json!({"v": 1, "op": "network"}));
    assert_eq!((answer, descriptors.len()), (json!({"ok": false, "error": "none"}), 0));
    for (request, word) in
        [(json!({"v": 2, "op": "ping"}), "version 2"), (json!({"v": 1, "op": "what"}), "malformed")]
    {
        let (answer, _) = ask(&control, &request);
        assert!(answer["ok"] == json!(false) && answer["error"].as_str().unwrap().contains(word), "{answer}");
    }
}

#[test]
fn ports_can_be_dialled() {
    use std::io::{Read, Write};
    let agent = Agent::start();
    let control = agent.control();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (answer, mut descriptors) = ask(&control, &json!({"v": 1, "op": "dial", "port": port}));
    assert_eq!((&answer["ok"], descriptors.len()), (&json!(true), 1));
    let mut inside = std::net::TcpStream::from(descriptors.remove(0));
    let (mut server, _) = listener.accept().unwrap();
    server.write_all(b"hello").unwrap();
    inside.set_nonblocking(false).unwrap();
    let mut text = [0; 5];
    inside.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"hello");
    drop(listener);
    let (answer, descriptors) = ask(&control, &json!({"v": 1, "op": "dial", "port": port}));
    assert_eq!((answer, descriptors.len()), (json!({"ok": false, "error": "refused"}), 0));
}

#[test]
fn everything_can_be_killed_at_once() {
    let agent = Agent::start();
    run(async {
        let one = agent.shell("sleep 4401").await;
        let two = agent.shell("sh -c '(setsid sleep 4402 &) ; sleep 4403'").await;
        support::eventually_async("all run", || with_marker("sleep\x004402").len() == 1).await;
        let (answer, _) = ask(&agent.control(), &json!({"v": 1, "op": "kill_all", "signal": 9}));
        assert_eq!(answer["ok"], json!(true));
        for running in [one, two] {
            assert_eq!(running.output().await.unwrap().end.signal, Some(9));
        }
        support::eventually_async("none is left", || with_marker("sleep\x00440").is_empty()).await;
    });
}

fn unix_ms(from_now: Duration) -> u64 {
    (SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + from_now).as_millis().try_into().unwrap()
}

#[test]
fn the_deadline_ends_the_agent_and_its_commands() {
    let agent = Agent::with(|config| config.deadline_unix_ms = Some(unix_ms(Duration::from_secs(600))));
    run(async {
        let running = agent.start_process(&shell("sleep 4411"), &[]).await.unwrap();
        let begin = Instant::now();
        let request = json!({"v": 1, "op": "deadline", "unix_ms": unix_ms(Duration::from_millis(300))});
        assert_eq!(ask(&agent.control(), &request).0, json!({"ok": true}));
        let outcome = tokio::task::spawn_blocking(move || agent.wait()).await.unwrap();
        assert_eq!(outcome, Outcome::Deadline);
        assert!(begin.elapsed() >= Duration::from_millis(250) && begin.elapsed() < Duration::from_secs(3));
        drop(running);
    });
    eventually("its commands are gone", || with_marker("4411").is_empty());
}

#[test]
fn a_deadline_can_be_lifted() {
    let agent = Agent::with(|config| config.deadline_unix_ms = Some(unix_ms(Duration::from_millis(500))));
    assert_eq!(
        ask(&agent.control(), &json!({"v": 1, "op": "deadline", "unix_ms": null})).0,
        json!({"ok": true})
    );
    let until = Instant::now() + Duration::from_millis(800);
    eventually("the old deadline passes", || Instant::now() > until);
    assert_eq!(run(agent.run("echo alive")).text(), "alive\n");
    assert_eq!(ask(&agent.control(), &json!({"v": 1, "op": "shutdown"})).0, json!({"ok": true}));
    assert_eq!(agent.wait(), Outcome::Shutdown);
}
