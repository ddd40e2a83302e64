//! What others left: the next command that writes removes it, and readers tell the truth until then.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, symlink};

use sandbar_core::{
    CreateOptions, ErrorKind, ProviderExt, Query, SandboxId, SandboxName, SandboxProvider, State,
};

use crate::support::{Bed, agent_pid, create, end_shim, eventually, is_alive};

fn make_dir(path: &std::path::Path) {
    fs::DirBuilder::new().mode(0o700).create(path).expect("a folder");
}

#[tokio::test]
async fn wreckage_is_not_a_sandbox_and_is_removed() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let sandbox = create(&provider).await;
    // A creation that died before its record, one that died after it, a destruction that died in its middle, and one that died at its end.
    make_dir(&bed.home().join("sandboxes/s0"));
    for (id, state) in [("s1", "creating"), ("s2", "destroying")] {
        let mut record = bed.stored(sandbox.id());
        record["id"] = id.into();
        record["name"] = id.into();
        record["state"] = state.into();
        record["private"]["agent"] = serde_json::Value::Null;
        record["private"]["slot"] = serde_json::Value::Null;
        make_dir(&bed.home().join("sandboxes").join(id));
        fs::write(bed.home().join("sandboxes").join(id).join("record.json"), record.to_string())
            .expect("a record");
        symlink(id, bed.home().join("names").join(id)).expect("a name");
    }
    make_dir(&bed.home().join("trash/s3"));
    fs::write(bed.home().join("trash/s3/file"), "x").expect("a file");
    make_dir(&bed.home().join("templates/host/.new-x"));

    let absent = SandboxId::new("s0").expect("an id");
    assert!(provider.describe(&absent).await.expect("an answer").is_none());
    let mut states: Vec<_> = provider
        .list_all(Query::new())
        .await
        .expect("a listing")
        .into_iter()
        .map(|record| record.state)
        .collect();
    states.sort_by_key(|state| state.as_str());
    assert_eq!(states, [State::Creating, State::Destroying, State::Running]);

    let name = SandboxName::new("s1").expect("a name");
    let taken = provider.create(CreateOptions::new().with_name(name.clone())).await;
    // Tidying and making go on at the same time: the name may still be taken in the first attempt, and is free in the second.
    let second = match taken {
        Ok(sandbox) => sandbox,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
            provider.create(CreateOptions::new().with_name(name)).await.expect("the name is free")
        }
    };
    second.destroy().await.expect("destroyed");
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after the wreckage").await;
}

#[tokio::test]
async fn a_shim_killed_between_launch_and_record_leaves_no_agent() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let sandbox = create(&provider).await;
    let id = sandbox.id().clone();
    let agent = agent_pid(&bed, &id);
    end_shim(&bed, &id).await;
    // What the record would be at that moment.
    let mut record = bed.stored(&id);
    record["state"] = "creating".into();
    record["private"]["agent"] = serde_json::Value::Null;
    fs::write(bed.folder(&id).join("record.json"), record.to_string()).expect("a record");
    assert!(is_alive(agent));
    create(&provider).await.destroy().await.expect("destroyed");
    eventually("the agent is gone", async || !is_alive(agent)).await;
    bed.assert_empty("after it").await;
}

#[tokio::test]
async fn a_record_that_can_not_be_read_is_unknown_and_never_absent() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let sandbox = provider
        .create(CreateOptions::new().with_name(SandboxName::new("odd").expect("a name")))
        .await
        .expect("a sandbox");
    let id = sandbox.id().clone();
    end_shim(&bed, &id).await;
    fs::write(bed.folder(&id).join("record.json"), "{\"version\":").expect("half a record");
    for error in [
        provider.describe(&id).await.expect_err("no answer"),
        provider.get(&id).await.map(|_| ()).expect_err("no answer"),
        sandbox.record().await.expect_err("no answer"),
        provider.list_all(Query::new()).await.expect_err("no listing"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("unknown"), "{error}");
    }
    // It can be destroyed all the same, with all that it had.
    assert!(provider.destroy(&id).await.expect("destroyed"));
    bed.assert_empty("after it").await;
}

#[tokio::test]
async fn a_data_folder_that_is_not_there_is_an_empty_one() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let id = SandboxId::new("s1").expect("an id");
    assert!(provider.list_all(Query::new()).await.expect("a listing").is_empty());
    assert!(provider.describe(&id).await.expect("an answer").is_none());
    assert!(!provider.destroy(&id).await.expect("an answer"));
    assert!(!bed.home().exists(), "looking makes nothing");
}

#[tokio::test]
async fn unknown_keys_of_a_record_survive_an_adoption() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let sandbox = create(&provider).await;
    let id = sandbox.id().clone();
    end_shim(&bed, &id).await;
    let mut record = bed.stored(&id);
    record["colour"] = "blue".into();
    record["private"]["depth"] = 3.into();
    fs::write(bed.folder(&id).join("record.json"), record.to_string()).expect("a record");
    sandbox
        .set_deadline(sandbar_core::Deadline::Never, sandbar_core::DeadlineMode::Set)
        .await
        .expect("adopted and set");
    let stored = bed.stored(&id);
    assert_eq!((&stored["colour"], &stored["private"]["depth"]), (&"blue".into(), &3.into()));
    assert!(stored["deadline"].is_null());
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after it").await;
}
