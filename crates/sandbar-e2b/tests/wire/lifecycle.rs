use std::time::Duration;

use sandbar_core::{
    Deadline, DeadlineAction, DeadlineMode, ErrorKind, ProviderExt, Sandbox, SandboxExt, SandboxId, State,
};
use sandbar_http::testing::{Answer, Scripted};
use serde_json::{Value, json};

use crate::script::{absent, asked, detail, made, provider, refused};

async fn handle(server: &Scripted) -> std::sync::Arc<dyn Sandbox> {
    provider(server).require(&SandboxId::new("i1").unwrap()).await.unwrap()
}

fn running() -> Answer {
    Answer::json(200, &detail("i1", json!({})))
}

fn paused(change: Value) -> Answer {
    let mut change = change;
    change["state"] = json!("paused");
    Answer::json(200, &detail("i1", change))
}

fn answers(server: &Scripted, answers: impl IntoIterator<Item = Answer>) {
    answers.into_iter().for_each(|answer| server.push(answer));
}

#[tokio::test]
async fn sleep_is_a_pause_with_memory_that_was_seen() {
    let server = Scripted::start().await;
    answers(&server, [running(), running(), Answer::status(204), paused(json!({"pauseMode": "full"}))]);
    let sandbox = handle(&server).await;
    let outcome = sandbox.require_pausing().unwrap().hibernate().await.unwrap();
    assert_eq!((outcome.processes_preserved, outcome.mechanism.as_str()), (true, "pause"));
    let pause = server.requests().into_iter().find(|request| request.method == "POST").unwrap();
    assert_eq!((pause.path(), pause.json::<Value>()), ("/sandboxes/i1/pause", json!({"memory": true})));
}

#[tokio::test]
async fn one_that_sleeps_already_is_a_success_with_a_word_and_one_without_memory_says_so() {
    let server = Scripted::start().await;
    let already = refused(409, "Sandbox \"i1\" is already paused");
    answers(&server, [running(), paused(json!({})), already, paused(json!({}))]);
    let sandbox = handle(&server).await;
    let outcome = sandbox.require_pausing().unwrap().hibernate().await.unwrap();
    assert!(outcome.processes_preserved && outcome.detail.unwrap().contains("already"));
    answers(&server, [running(), Answer::status(204), paused(json!({"pauseMode": "filesystem"}))]);
    assert!(!sandbox.require_pausing().unwrap().hibernate().await.unwrap().processes_preserved);
}

#[tokio::test]
async fn a_pause_that_failed_or_did_nothing_is_an_error() {
    for (answer, after, kind) in [
        (refused(500, "no"), running(), ErrorKind::Unavailable),
        (refused(409, "Sandbox \"i1\" is being killed"), running(), ErrorKind::Conflict),
        (Answer::status(204), running(), ErrorKind::Conflict),
        (absent(), running(), ErrorKind::NotFound),
    ] {
        let server = Scripted::start().await;
        answers(&server, [running(), running(), answer, after.clone(), after]);
        let sandbox = handle(&server).await;
        let error = sandbox.require_pausing().unwrap().hibernate().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
}

#[tokio::test]
async fn a_resume_connects_with_the_time_that_it_was_given_and_says_what_it_could_not_see() {
    let server = Scripted::start().await;
    let change = json!({
        "metadata": {"sandbarLifetime": "77", "sandbarVersion": "1"},
        "lifecycle": {"autoResume": false, "onTimeout": "pause"},
    });
    answers(&server, [paused(change.clone()), paused(change), Answer::json(201, &made("i1"))]);
    let sandbox = handle(&server).await;
    let outcome = sandbox.require_pausing().unwrap().resume().await.unwrap();
    // The guest does not answer here: nothing was seen, so nothing is claimed.
    assert!(!outcome.processes_preserved && outcome.detail.is_some(), "{outcome:?}");
    let connect = server.requests().into_iter().find(|request| request.path().ends_with("/connect")).unwrap();
    assert_eq!(
        (connect.path(), connect.json::<Value>()),
        ("/v2/sandboxes/i1/connect", json!({"timeout": 77}))
    );
}

#[tokio::test]
async fn waking_one_that_runs_changes_nothing() {
    let server = Scripted::answering(|_| running()).await;
    let sandbox = handle(&server).await;
    sandbox.wake().await.unwrap();
    assert!(sandbox.require_pausing().unwrap().resume().await.unwrap().processes_preserved);
    assert!(asked(&server).iter().all(|line| line.starts_with("GET")));
}

#[tokio::test]
async fn a_deadline_is_whole_seconds_from_now_and_the_answer_is_what_is_in_force() {
    let server = Scripted::start().await;
    answers(&server, [running(), Answer::status(204), running()]);
    let sandbox = handle(&server).await;
    let set =
        sandbox.set_deadline(Deadline::In(Duration::from_millis(1200)), DeadlineMode::Set).await.unwrap();
    assert_eq!(set, "2036-01-01T00:00:00Z".parse().ok());
    let request = &server.requests()[1];
    assert_eq!((request.path(), request.json::<Value>()), ("/sandboxes/i1/timeout", json!({"timeout": 2})));
    // An earlier one is no extension.
    answers(&server, [running()]);
    let kept =
        sandbox.set_deadline(Deadline::In(Duration::from_secs(5)), DeadlineMode::ExtendOnly).await.unwrap();
    assert_eq!(kept, set);
    assert_eq!(server.count("POST", "*"), 1);
    let error = sandbox.set_deadline(Deadline::Never, DeadlineMode::Set).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn a_deadline_of_one_that_sleeps_or_is_gone_says_which() {
    for (answer, look, kind) in [
        (absent(), paused(json!({})), ErrorKind::Conflict),
        (absent(), absent(), ErrorKind::NotFound),
        (refused(409, "it is paused"), paused(json!({})), ErrorKind::Conflict),
    ] {
        let server = Scripted::start().await;
        answers(&server, [running(), answer, look]);
        let sandbox = handle(&server).await;
        let hour = Deadline::In(Duration::from_secs(3600));
        let error = sandbox.set_deadline(hour, DeadlineMode::Set).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        if kind == ErrorKind::Conflict {
            assert_eq!(error.state(), Some(State::Sleeping), "{error}");
        }
    }
}

#[tokio::test]
async fn what_happens_at_the_deadline_is_not_changed() {
    let server = Scripted::answering(|_| running()).await;
    let sandbox = handle(&server).await;
    let error =
        sandbox.require_pausing().unwrap().set_deadline_action(DeadlineAction::Pause).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
