//! The main command, as the host side sees it.

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use sandbar_agent::config::{MainConfig, Restart};
use sandbar_wire::envd::{Empty, ListResponse};
use serde_json::{Value, json};

use support::{Agent, eventually, is_root};

fn ask(agent: &Agent, from: u64, seen: u64, wait_ms: u64) -> Value {
    let socket = agent.control();
    let request = json!({"v": 1, "op": "main", "from": from, "seen": seen, "wait_ms": wait_ms});
    send(&socket, request.to_string().as_bytes(), SendFlags::NOSIGNAL).unwrap();
    let mut answer = vec![0; 64 << 10];
    let (_, length) = recv(&socket, &mut answer[..], RecvFlags::empty()).unwrap();
    serde_json::from_slice(&answer[..length]).unwrap()
}

fn with(script: &str, restart: Restart) -> Agent {
    let config = MainConfig {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        restart,
        ..MainConfig::default()
    };
    Agent::with(|agent| agent.main = Some(config))
}

fn said(answer: &Value) -> Vec<u8> {
    let pieces = answer["pieces"].as_array().unwrap().iter();
    pieces
        .flat_map(|piece| {
            base64::engine::general_purpose::STANDARD.decode(piece["d"].as_str().unwrap()).unwrap()
        })
        .collect()
}

fn state(agent: &Agent) -> String {
    ask(agent, 0, 0, 0)["state"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn without_one_the_answer_is_none() {
    let agent = Agent::start();
    assert_eq!(ask(&agent, 0, 0, 0), json!({"ok": false, "error": "none"}));
}

#[tokio::test]
async fn it_runs_is_listed_and_ends_as_data() {
    let agent = with("echo out; echo err >&2; read x < fifo; exit 7", Restart::No);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        agent.home_path("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
        0,
    )
    .unwrap();
    // Made after the command may have looked for it: then it ended by itself, which is as good.
    eventually("its words", || said(&ask(&agent, 0, 0, 0)).len() >= 8);
    let list: ListResponse = agent.unary("process.Process/List", &Empty {}).await.unwrap();
    if state(&agent) == "running" {
        assert_eq!(list.processes[0].tag.as_deref(), Some("main"));
        std::fs::write(agent.home_path("fifo"), "x\n").unwrap();
    }
    eventually("its end", || state(&agent) == "exited");
    let answer = ask(&agent, 0, 0, 0);
    assert!(answer["exit"]["code"].as_i64().is_some_and(|code| code != 0), "{answer}");
    let streams: Vec<_> =
        answer["pieces"].as_array().unwrap().iter().map(|piece| piece["s"].clone()).collect();
    assert!(streams.contains(&json!("stdout")) && streams.contains(&json!("stderr")), "{answer}");
}

#[tokio::test]
async fn one_that_can_not_be_started_is_told_and_not_repeated() {
    for (program, reason) in
        [("/no/such/program", "program_not_found"), ("/etc/passwd", "program_not_executable")]
    {
        let config =
            MainConfig { program: program.into(), restart: Restart::Always, ..MainConfig::default() };
        let agent = Agent::with(|agent| agent.main = Some(config));
        eventually("its failure", || state(&agent) == "failed");
        let answer = ask(&agent, 0, 0, 0);
        assert!(answer["start_error"]["reason"].is_string(), "{reason}: {answer}");
        assert_eq!(answer["restarts"], 0);
    }
}

#[tokio::test]
async fn a_question_waits_for_news_and_no_longer() {
    let agent = with("sleep 0.5; echo late; sleep 600", Restart::No);
    eventually("it runs", || state(&agent) == "running");
    let seen = ask(&agent, 0, 0, 0)["version"].as_u64().unwrap();
    let begun = Instant::now();
    let answer = ask(&agent, 0, seen, 20_000);
    assert_eq!(said(&answer), b"late\n");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let begun = Instant::now();
    let nothing = ask(&agent, 5, seen, 300);
    assert!(said(&nothing).is_empty() && begun.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn a_command_that_nobody_reads_is_not_held_up() {
    let agent = with("head -c 3000000 /dev/zero; echo end", Restart::No);
    eventually("its end", || state(&agent) == "exited");
    let answer = ask(&agent, 0, 0, 0);
    assert_eq!(answer["next"], 3_000_004);
    assert!(answer["pieces"][0]["o"].as_u64().unwrap() > 2_000_000, "only the last of it is kept");
}

#[tokio::test]
async fn restarts_pause_longer_each_time() {
    let agent = with("exit 1", Restart::Always);
    let begun = Instant::now();
    eventually("four restarts", || ask(&agent, 0, 0, 0)["restarts"].as_u64().unwrap() >= 4);
    // 100 + 200 + 400 + 800 ms.
    assert!(begun.elapsed() >= Duration::from_millis(1400), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn env_folder_and_user_are_its_own() {
    let config = MainConfig {
        program: "sh".into(),
        args: vec!["-c".into(), "echo $OWN; pwd; id -u; exit 0".into()],
        env: BTreeMap::from([("OWN".into(), "mine".into())]),
        cwd: Some("/tmp".into()),
        user: is_root().then(|| "root".into()),
        restart: Restart::OnFailure,
    };
    let agent = Agent::with(|agent| agent.main = Some(config));
    eventually("its end", || state(&agent) == "exited");
    let id = rustix::process::geteuid().as_raw();
    let expected = format!("mine\n/tmp\n{id}\n");
    assert_eq!(String::from_utf8_lossy(&said(&ask(&agent, 0, 0, 0))), expected);
}
