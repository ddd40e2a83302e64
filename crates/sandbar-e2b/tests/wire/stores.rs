use sandbar_core::{ErrorKind, TemplateId, Templates, VolumeName, VolumeQuery, Volumes};
use sandbar_http::testing::{Answer, Recorded, Scripted};
use serde_json::{Value, json};

use crate::script::{asked, detail, provider, refused};

/// A server with these volumes, snapshots and sandboxes.
async fn with(volumes: Value, snapshots: Value, sandboxes: Value) -> Scripted {
    Scripted::answering(move |request: &Recorded| match (request.method.as_str(), request.path()) {
        ("GET", "/volumes") => Answer::json(200, &volumes),
        ("GET", "/snapshots") => Answer::json(200, &snapshots),
        ("GET", "/v2/sandboxes") => Answer::json(200, &sandboxes),
        ("GET", path) if path.starts_with("/templates/aliases/") => {
            Answer::json(200, &json!({"templateID": "t9", "public": false}))
        }
        ("POST", "/volumes") => Answer::json(201, &json!({"volumeID": "v9", "name": "new", "token": "t"})),
        _ => Answer::status(204),
    })
    .await
}

fn volume(name: &str) -> VolumeName {
    VolumeName::new(name).unwrap()
}

fn template(id: &str) -> TemplateId {
    TemplateId::new(id).unwrap()
}

#[tokio::test]
async fn volumes_are_looked_up_by_name_and_made_once() {
    let server = with(json!([{"volumeID": "v1", "name": "data"}]), json!([]), json!([])).await;
    let volumes = provider(&server);
    assert!(!Volumes::create(&volumes, &volume("data")).await.unwrap());
    assert!(Volumes::create(&volumes, &volume("new")).await.unwrap());
    assert_eq!(server.count("POST", "/volumes"), 1);
    assert!(
        volumes.exists(&volume("data")).await.unwrap() && !volumes.exists(&volume("none")).await.unwrap()
    );
    assert!(Volumes::remove(&volumes, &volume("data")).await.unwrap());
    assert_eq!(asked(&server).pop().unwrap(), "DELETE /volumes/v1");
    assert!(!Volumes::remove(&volumes, &volume("none")).await.unwrap());
}

#[tokio::test]
async fn what_a_sandbox_holds_asleep_or_not_is_attached() {
    let volumes = json!([{"volumeID": "v1", "name": "data"}, {"volumeID": "v2", "name": "free"}, {"volumeID": "v3", "name": "dull"}]);
    let ours = json!({"sandbarVersion": "1"});
    let holder = detail("i1", json!({"state": "paused", "volumeMounts": [{"name": "data", "path": "/d"}]}));
    let other = detail("i2", json!({"metadata": ours}));
    let server = with(volumes.clone(), json!([]), json!([holder, other])).await;
    let query = |prefix: &str, attached| VolumeQuery { prefix: prefix.into(), attached };
    let names = async |server: &Scripted, query| {
        let infos = Volumes::list(&provider(server), query).await.unwrap();
        infos.into_iter().map(|info| info.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&server, query("", Some(true))).await, ["data"]);
    assert_eq!(names(&server, query("d", Some(false))).await, ["dull"]);
    let error = Volumes::remove(&provider(&server), &volume("data")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    // One that does not tell may hold any.
    let silent = detail("i3", json!({}));
    let server = with(volumes, json!([]), json!([silent])).await;
    assert_eq!(names(&server, query("", Some(true))).await.len(), 3);
    assert_eq!(server.count("DELETE", "*"), 0);
}

#[tokio::test]
async fn an_account_without_volumes_is_told_so_by_each_call() {
    let server = Scripted::answering(|_| refused(403, "use of volumes is not enabled")).await;
    let volumes = provider(&server);
    let errors = [
        Volumes::create(&volumes, &volume("v")).await.map(drop).unwrap_err(),
        volumes.exists(&volume("v")).await.map(drop).unwrap_err(),
        Volumes::list(&volumes, VolumeQuery::default()).await.map(drop).unwrap_err(),
        Volumes::remove(&volumes, &volume("v")).await.map(drop).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("not enabled"), "{error}");
    }
}

fn snapshots() -> Value {
    json!([
        {"snapshotID": "team/warm:v2", "names": ["team/warm:v2"]},
        {"snapshotID": "team/warm:default", "names": ["team/warm:default"]},
        {"snapshotID": "team/warmer:default", "names": ["team/warmer:default"]},
        {"snapshotID": "t5:default"},
    ])
}

#[tokio::test]
async fn templates_have_the_caller_s_ids_and_e2b_s_references() {
    let server = with(json!([]), snapshots(), json!([])).await;
    let templates = provider(&server);
    let found = Templates::get(&templates, &template("warm")).await.unwrap().unwrap();
    assert_eq!((found.id.as_str(), found.reference.as_str()), ("warm", "team/warm:default"));
    assert!(!found.in_use && found.created_at.is_none());
    // The server's filter is looked at again.
    assert!(Templates::get(&templates, &template("war")).await.unwrap().is_none());
    assert!(Templates::get(&templates, &template("Warm")).await.unwrap().is_none());
    let listed = Templates::list(&templates, "war").await.unwrap();
    assert_eq!(listed.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["warm", "warmer"]);
    assert_eq!(Templates::list(&templates, "").await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_template_that_may_be_in_use_is_not_removed() {
    for (row, is_used) in [
        (json!({"alias": "warm", "state": "paused"}), true),
        (json!({"alias": "team/warm:v1"}), true),
        (json!({"alias": null, "templateID": "t9"}), true),
        (json!({"alias": null, "templateID": "t8"}), false),
        (json!({"alias": "other", "templateID": "t8"}), false),
        (json!({"alias": null, "templateID": null}), true),
    ] {
        let mut row = detail("i1", row);
        if row["templateID"].is_null() {
            row.as_object_mut().unwrap().remove("templateID");
        }
        let server = with(json!([]), snapshots(), json!([row.clone()])).await;
        let removed = Templates::remove(&provider(&server), &template("warm")).await;
        assert_eq!(server.count("DELETE", "*"), usize::from(!is_used), "{row}");
        match removed {
            Ok(removed) => assert!(removed && !is_used, "{row}"),
            Err(error) => assert!(is_used && error.kind() == ErrorKind::Conflict, "{row}: {error}"),
        }
    }
    let server = with(json!([]), snapshots(), json!([])).await;
    assert!(Templates::remove(&provider(&server), &template("warm")).await.unwrap());
    assert_eq!(asked(&server).pop().unwrap(), "DELETE /templates/team%2Fwarm%3Adefault");
    assert!(!Templates::remove(&provider(&server), &template("none")).await.unwrap());
}

#[tokio::test]
async fn the_api_has_a_veto_of_its_own() {
    let server = Scripted::answering(|request| match request.method.as_str() {
        "DELETE" => refused(400, "cannot delete template: there are sandboxes"),
        _ if request.path() == "/snapshots" => Answer::json(200, &snapshots()),
        _ => Answer::json(200, &json!([])),
    })
    .await;
    let error = Templates::remove(&provider(&server), &template("warm")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("there are sandboxes"), "{error}");
}

#[tokio::test]
async fn stores_that_can_not_be_listed_are_errors() {
    let server = Scripted::answering(|_| refused(500, "no")).await;
    let stores = provider(&server);
    assert!(Templates::get(&stores, &template("warm")).await.is_err());
    assert!(Templates::list(&stores, "").await.is_err());
    assert!(Templates::remove(&stores, &template("warm")).await.is_err());
    assert!(stores.exists(&volume("v")).await.is_err());
    // That of the sandboxes counts, too.
    let server = Scripted::answering(|request| match request.path() {
        "/volumes" => Answer::json(200, &json!([{"volumeID": "v1", "name": "data"}])),
        "/snapshots" => Answer::json(200, &snapshots()),
        _ => refused(500, "no"),
    })
    .await;
    let stores = provider(&server);
    assert!(Volumes::list(&stores, VolumeQuery::default()).await.is_err());
    assert!(Volumes::remove(&stores, &volume("data")).await.is_err());
    assert!(Templates::list(&stores, "").await.is_err());
    assert_eq!(server.count("DELETE", "*"), 0);
}
