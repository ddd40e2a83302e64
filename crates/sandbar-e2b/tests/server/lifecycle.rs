//! What the kit does not ask.

use std::time::Duration;

use sandbar::{
    CommitOptions, CreateOptions, Deadline, DeadlineAction, DeadlineMode, EgressPolicy, ErrorKind, GuestPath,
    Labels, Lifetime, ProviderExt, Query, SandboxExt, SandboxId, SandboxName, SandboxProvider, State,
    TemplateId, VolumeMount, VolumeName,
};

use crate::rig::Rig;

fn labelled() -> CreateOptions {
    CreateOptions::new().with_labels(Labels::new().with("kept", "yes").expect("a label"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_policy_is_in_force_before_anything_runs() {
    let rig = Rig::new().await;
    let provider = rig.provider();
    let sandbox = provider.create(CreateOptions::new()).await.expect("a sandbox");
    let behind = rig.behind.describe(sandbox.id()).await.expect("a look").expect("it is there");
    assert_eq!(behind.egress.policy, Some(EgressPolicy::DenyAll));
    let network = sandbox.require_network().expect("it has one");
    let policy = EgressPolicy::allow(["example.test"]).expect("a policy");
    network.set_policy(policy.clone()).await.expect("another policy");
    let behind = rig.behind.describe(sandbox.id()).await.expect("a look").expect("it is there");
    assert_eq!(behind.egress.policy, Some(policy));
    assert!(provider.destroy(sandbox.id()).await.expect("destroyed"));
    rig.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_sandboxes_are_those_that_run_and_those_that_sleep_stay_asleep() {
    let rig = Rig::new().await;
    let provider = rig.provider();
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(provider.create(labelled()).await.expect("a sandbox"));
    }
    made[1].require_pausing().expect("it can sleep").hibernate().await.expect("asleep");
    let live = provider.live_sandboxes().await.expect("handles");
    let ids: Vec<&SandboxId> = live.iter().map(|sandbox| sandbox.id()).collect();
    // The newest comes first in E2B's listing.
    assert_eq!(ids, [made[2].id(), made[0].id()]);
    assert_eq!(made[1].record().await.expect("a record").state, State::Sleeping);
    for sandbox in &made {
        assert!(sandbox.destroy().await.expect("destroyed"));
    }
    rig.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_those_who_want_one_name_at_once_one_has_it() {
    let rig = Rig::new().await;
    let options = labelled().with_name(SandboxName::new("wanted").expect("a name"));
    let (one, other) = (rig.provider(), rig.provider());
    let both = tokio::join!(one.create(options.clone()), other.create(options.clone()));
    let results = [both.0, both.1];
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    let records = one.list_all(Query::new()).await.expect("a listing");
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].name.as_ref().map(SandboxName::as_str), Some("wanted"));
    for result in results {
        match result {
            Ok(sandbox) => assert!(sandbox.destroy().await.expect("destroyed")),
            Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyExists),
        }
    }
    rig.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owned_one_has_a_lease_and_does_not_sleep() {
    let rig = Rig::new().await;
    let provider = rig.provider();
    let options = labelled().with_lifetime(Lifetime::Owned).with_deadline(Duration::from_secs(86_400));
    let sandbox = provider.create(options).await.expect("a sandbox");
    let deadline = sandbox.record().await.expect("a record").deadline.expect("a deadline");
    let left = deadline.as_second() - jiff::Timestamp::now().as_second();
    assert!((60..=120).contains(&left), "{left} s");
    let refused = sandbox.require_pausing().expect("a part").hibernate().await.expect_err("it has an owner");
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    let day = Deadline::In(Duration::from_secs(86_400));
    let set = sandbox.set_deadline(day, DeadlineMode::Set).await.expect("set").expect("a deadline");
    assert!(set.as_second() - jiff::Timestamp::now().as_second() <= 120);
    assert!(sandbox.destroy().await.expect("destroyed"));
    rig.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_put_to_sleep_at_its_deadline_wakes_with_its_processes() {
    let rig = Rig::new().await;
    let provider = rig.provider();
    let options = labelled().with_deadline(Duration::from_secs(600)).with_on_deadline(DeadlineAction::Pause);
    let sandbox = provider.create(options).await.expect("a sandbox");
    let outcome = sandbox.require_pausing().expect("a part").hibernate().await.expect("asleep");
    assert!(outcome.processes_preserved && outcome.mechanism == "pause");
    let again = sandbox.require_pausing().expect("a part").hibernate().await.expect("asleep still");
    assert!(again.detail.expect("a word").contains("already"));
    // By a handle that knows nothing of it: as much time again as it was given.
    let other = rig.provider().require(sandbox.id()).await.expect("a handle");
    let outcome = other.require_pausing().expect("a part").resume().await.expect("awake");
    assert!(outcome.processes_preserved, "{outcome:?}");
    let deadline = other.record().await.expect("a record").deadline.expect("a deadline");
    let left = deadline.as_second() - jiff::Timestamp::now().as_second();
    assert!((590..=600).contains(&left), "{left} s");
    assert!(sandbox.destroy().await.expect("destroyed"));
    rig.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_on_and_round_volumes_are_not_captured() {
    let rig = Rig::new().await;
    let provider = rig.provider();
    let volume = VolumeName::new("data").expect("a name");
    provider.require_volumes().expect("a part").create(&volume).await.expect("a volume");
    let path = |text: &str| GuestPath::new(text).expect("a path");
    let mount = VolumeMount { volume, path: path("/home/user/data") };
    let sandbox = provider.create(labelled().with_volume(mount)).await.expect("a sandbox");
    let templates = provider.require_templates().expect("a part");
    let commit = |capture: &str, id: &str| CommitOptions {
        sandbox: sandbox.id().clone(),
        template: TemplateId::new(id).expect("an id"),
        capture_paths: vec![path(capture)],
        label: None,
    };
    for capture in ["/home/user/data", "/home/user", "/"] {
        let error = templates.commit(commit(capture, "on-volume")).await.expect_err("it is not captured");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains("data"), "{error}");
    }
    let error = templates.commit(commit("/tmp", "Upper")).await.expect_err("no name at E2B");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(templates.list("").await.expect("a listing").is_empty());
    let made = templates.commit(commit("/tmp", "fine")).await.expect("a template");
    assert!(made.in_use && made.created_at.is_some() && made.reference.contains("fine"));
    assert!(sandbox.destroy().await.expect("destroyed"));
    assert!(templates.remove(&made.id).await.expect("removed"));
    assert!(!templates.remove(&made.id).await.expect("a look"));
    rig.assert_empty().await;
}
