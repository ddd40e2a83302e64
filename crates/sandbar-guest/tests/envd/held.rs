//! Processes whose end the agent does not tell, because somebody holds their output.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use sandbar_core::{
    Command, Commands, ErrorKind, ExitStatus, ProcessEvent, Processes, RunOptions, SpawnOptions,
};
use sandbar_guest::EnvdClient;
use sandbar_wire::envd::StartRequest;
use tokio::time::Instant;

use crate::scripted::{
    Does, Says, Scripted, after, at_once, err, exited, held, is_kill, is_look, out, started,
};

const PID: u32 = 42;
const STAT: &str = "stat 42 (sh) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 0\n";

/// A process of which looks find out what `life` says at each of them.
struct Agent {
    says: Box<dyn Fn() -> Says + Send + Sync>,
    life: Box<dyn Fn(usize) -> String + Send + Sync>,
    looks: AtomicUsize,
    kills: AtomicUsize,
}

impl Agent {
    fn new(
        says: impl Fn() -> Says + Send + Sync + 'static,
        life: impl Fn(usize) -> String + Send + Sync + 'static,
    ) -> Self {
        let (looks, kills) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { says: Box::new(says), life: Box::new(life), looks, kills }
    }
}

impl Does for Agent {
    fn start(&self, request: &StartRequest) -> Says {
        if is_kill(request) {
            self.kills.fetch_add(1, Ordering::SeqCst);
            return at_once([vec![started(9)], exited(0)].concat());
        }
        if !is_look(request) {
            return (self.says)();
        }
        let answer = (self.life)(self.looks.fetch_add(1, Ordering::SeqCst));
        match answer.as_str() {
            "fails" => at_once([vec![started(9)], exited(2)].concat()),
            "hangs" => held(vec![started(9)]),
            answer => at_once([vec![started(9), out(answer)], exited(0)].concat()),
        }
    }

    fn list(&self) -> Vec<u32> {
        vec![PID]
    }
}

fn gone(_: usize) -> String {
    "gone\n".into()
}

fn shell() -> Command {
    Command::shell("sleep 1000 & exit 7")
}

#[tokio::test(start_paused = true)]
async fn what_ends_within_the_window_is_not_looked_for() {
    let says = || after(Duration::from_millis(1400), [vec![started(PID), out("a")], exited(3)].concat());
    let agent = Scripted::new(Agent::new(says, gone));
    let output = EnvdClient::new(agent.clone()).run(&shell()).await.unwrap();
    assert_eq!((output.status, &output.stdout[..]), (ExitStatus::Code(3), &b"a"[..]));
    assert_eq!(agent.count("/process.Process/List"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_held_stream_costs_seconds_and_its_outcome_is_unknown_and_no_success() {
    let agent = Scripted::new(Agent::new(|| held(vec![started(PID), out("out"), err("oops")]), gone));
    let begun = Instant::now();
    let output = EnvdClient::new(agent.clone()).run(&shell()).await.unwrap();
    assert_eq!(output.status, ExitStatus::Unknown);
    assert_eq!(output.status.to_code(), 137);
    assert_eq!(&output.stdout[..], b"out");
    let stderr = output.stderr_lossy().into_owned();
    let (before, note) = stderr.split_once('\n').unwrap();
    assert!(
        before == "oops" && note.contains("process 42") && note.contains("counts as a failure"),
        "{stderr}"
    );
    // On a clock that only waits turn: the window and the grace, and nothing else.
    assert_eq!(begun.elapsed().as_millis() / 100, 35);
    assert_eq!(agent.streams(), 0, "a stream is still held");
}

#[tokio::test(start_paused = true)]
async fn the_note_stands_alone_where_nothing_else_was_said() {
    let agent = Scripted::new(Agent::new(|| held(vec![started(PID)]), gone));
    let output = EnvdClient::new(agent).run(&shell()).await.unwrap();
    assert!(output.stderr.starts_with(b"process 42") && output.stdout.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_end_that_comes_late_is_the_answer() {
    for code in [0, 5] {
        let says =
            move || at_once(vec![started(PID)]).chain(after(Duration::from_secs(3), exited(code))).boxed();
        let agent = Scripted::new(Agent::new(says, gone));
        let output = EnvdClient::new(agent).run(&shell()).await.unwrap();
        assert_eq!((output.status, output.stderr.len()), (ExitStatus::Code(code), 0));
    }
}

#[tokio::test(start_paused = true)]
async fn what_ends_later_is_found_later() {
    // Alive at the first four looks.
    let life = |look| if look < 4 { STAT.into() } else { "gone\n".into() };
    let agent = Scripted::new(Agent::new(|| held(vec![started(PID)]), life));
    let begun = Instant::now();
    let output = EnvdClient::new(agent.clone()).run(&shell()).await.unwrap();
    assert_eq!(output.status, ExitStatus::Unknown);
    assert_eq!(agent.count("/process.Process/List"), 5);
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_zombie_has_ended_and_so_has_a_number_that_is_another_ones() {
    let zombie = STAT.replace(" S ", " Z ");
    let agent = Scripted::new(Agent::new(|| held(vec![started(PID)]), move |_| zombie.clone()));
    assert_eq!(EnvdClient::new(agent).run(&shell()).await.unwrap().status, ExitStatus::Unknown);
    let reused = |look| if look == 0 { STAT.into() } else { STAT.replace("777", "778") };
    let agent = Scripted::new(Agent::new(|| held(vec![started(PID)]), reused));
    assert_eq!(EnvdClient::new(agent.clone()).run(&shell()).await.unwrap().status, ExitStatus::Unknown);
    assert_eq!(agent.count("/process.Process/List"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_look_that_finds_nothing_out_is_no_end() {
    for answer in ["fails", "hangs", "hidden\n", ""] {
        let says = || at_once(vec![started(PID)]).chain(after(Duration::from_secs(60), exited(0))).boxed();
        let agent = Scripted::new(Agent::new(says, move |_| answer.into()));
        let output = EnvdClient::new(agent.clone()).run(&shell()).await.unwrap();
        assert_eq!(output.status, ExitStatus::Code(0), "{answer}");
        assert!(agent.count("/process.Process/List") > 2, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_keeps_what_was_said_and_ends_the_tree() {
    let agent = Scripted::new(Agent::new(|| held(vec![started(PID), out("so far")]), |_| STAT.into()));
    let options = RunOptions::default().with_timeout(Duration::from_secs(8));
    let begun = Instant::now();
    let error = EnvdClient::new(agent.clone()).run_opts(&shell(), options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let partial = error.partial().unwrap();
    assert_eq!((&partial.stdout[..], partial.ended), (&b"so far"[..], Some(true)));
    assert_eq!(begun.elapsed().as_secs(), 8);
    assert_eq!(agent.streams(), 0);
}

#[tokio::test(start_paused = true)]
async fn spawned_ones_end_the_same_way() {
    let agent = Scripted::new(Agent::new(|| held(vec![started(PID), out("a")]), gone));
    let client = EnvdClient::new(agent.clone());
    let process = client.spawn(&shell(), SpawnOptions::new()).await.unwrap();
    let events: Vec<_> = process.events.map(Result::unwrap).collect().await;
    let ProcessEvent::Exit(exit) = events.last().unwrap() else { panic!("no exit") };
    assert_eq!((events.len(), exit.status), (3, ExitStatus::Unknown));
    assert!(matches!(&events[1], ProcessEvent::Stderr(note) if note.starts_with(b"process 42")));
    assert_eq!(agent.streams(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_a_lost_one() {
    let agent = Scripted::new(Agent::new(|| held(vec![started(PID)]), |_| STAT.into()));
    let begun = Instant::now();
    let error = EnvdClient::new(agent).run(&shell()).await.unwrap_err();
    assert_eq!((error.kind(), begun.elapsed().as_secs()), (ErrorKind::Unavailable, 120));
}

#[tokio::test(start_paused = true)]
async fn a_broken_stream_is_no_exit() {
    for end in
        [vec![], vec![sandbar_wire::envd::end_frame(None)], vec![bytes::Bytes::from_static(b"\0\0\0\0")]]
    {
        let says = move || at_once([vec![started(PID), out("kept")], end.clone()].concat());
        let agent = Scripted::new(Agent::new(says, gone));
        let error = EnvdClient::new(agent).run(&shell()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert_eq!(&error.partial().unwrap().stdout[..], b"kept");
    }
}
