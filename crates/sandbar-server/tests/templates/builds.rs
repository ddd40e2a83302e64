use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::common::{Rig, ask};
use crate::support::has_root;

#[tokio::test(flavor = "multi_thread")]
async fn a_build_does_its_steps_for_real_and_knows_them_again() {
    let rig = Rig::local().await;
    let mut ids = Vec::new();
    for round in 0..2 {
        let build = rig.register(json!({ "name": "App:V1", "tags": ["stable"], "cpuCount": 1 })).await;
        let tree = rig.upload(&build, 'a', &[("src/one", "1"), ("src/deep/two", "2")]).await;
        let tool = rig.upload(&build, 'b', &[("bin/tool", "#!/bin/sh\necho tool\n")]).await;
        let (app, bin) = if has_root() { ("/app", "/usr/local/bin/tool") } else { ("app", "bin/tool") };
        let mut steps = vec![
            json!({ "type": "ENV", "args": ["GREETING", "hello there"] }),
            json!({ "type": "COPY", "args": ["src", app, "", ""], "filesHash": tree, "forceUpload": true }),
            json!({ "type": "COPY", "args": ["bin/tool", bin, "", "0755"], "filesHash": tool }),
            json!({ "type": "WORKDIR", "args": ["/home/user/job"] }),
            json!({ "type": "RUN", "args": ["echo \"$GREETING from $(id -un)\" > said; echo a line"] }),
        ];
        if has_root() {
            steps.push(json!({ "type": "RUN", "args": ["id -un > /root-was-here", "root"] }));
            steps.push(json!({ "type": "RUN", "args": ["[ \"$(id -un)\" = user ]", ""] }));
        }
        let order = json!({ "fromImage": "e2bdev/base:latest", "steps": steps, "startCmd": "echo started > /tmp/started; sleep 600" });
        assert_eq!(rig.start(&build, order.clone()).await.status, StatusCode::ACCEPTED);
        let again = rig.start(&build, order).await;
        assert_eq!(again.status, StatusCode::BAD_REQUEST, "{}", again.text());
        let ended = rig.ended(&build).await;
        assert_eq!(ended.status, "ready", "{} {:?}", ended.reason, ended.log);
        assert_eq!(ended.says("CACHED [builder 5/"), round == 1, "{:?}", ended.log);
        assert_eq!(ended.log.iter().any(|line| line == "a line"), round == 0, "{:?}", ended.log);
        ids.push(build.template);
    }
    assert_eq!(ids[0], ids[1]);
    // The build before lost its tags, and nobody uses it.
    rig.has_templates(1).await;

    let made = rig.create(json!({ "templateID": "app:stable" })).await;
    let app = if has_root() { "/app" } else { "/home/user/app" };
    assert_eq!(
        rig.said(&made.id, &format!("cat {app}/one {app}/deep/two; stat -c %U {app}/one")).await,
        "12user"
    );
    let tool = if has_root() { "tool" } else { "/home/user/bin/tool" };
    assert_eq!(rig.said(&made.id, tool).await, "tool");
    assert_eq!(rig.said(&made.id, "cat /home/user/job/said").await, "hello there from user");
    assert_eq!(rig.said(&made.id, "echo $GREETING").await, "hello there");
    assert_eq!(
        rig.said(&made.id, "until [ -e /tmp/started ]; do :; done; cat /tmp/started").await,
        "started"
    );
    if has_root() {
        assert_eq!(rig.said(&made.id, "cat /root-was-here").await, "root");
    }
    let detail = rig.get(&format!("/sandboxes/{}", made.id)).await.json();
    assert_eq!(detail["templateID"], json!(ids[0]), "{detail}");
    assert_eq!(detail["cpuCount"], json!(1), "{detail}");

    // Steps that write nothing are the same layer, which no sandbox may have twice.
    let nothing = json!([{ "type": "RUN", "args": ["true"] }, { "type": "RUN", "args": ["true # again"] }]);
    let derived = rig.build("derived", json!({ "fromTemplate": "app:v1", "steps": nothing })).await;
    let made = rig.create(json!({ "templateID": derived.template })).await;
    assert_eq!(rig.said(&made.id, "cat /home/user/job/said").await, "hello there from user");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails_is_named_and_leaves_no_template() {
    let rig = Rig::local().await;
    let build = rig.register(json!({ "name": "broken" })).await;
    let steps =
        json!([{ "type": "RUN", "args": ["true"] }, { "type": "RUN", "args": ["echo last words; exit 3"] }]);
    let order = json!({ "fromTemplate": "base", "steps": steps });
    assert_eq!(rig.start(&build, order).await.status, StatusCode::ACCEPTED);
    let ended = rig.ended(&build).await;
    assert_eq!((ended.status.as_str(), &ended.reason["step"]), ("error", &json!("2")));
    let message = ended.reason["message"].as_str().unwrap();
    assert!(message.starts_with("RUN echo last words; exit 3: ended with exit code 3"), "{message}");
    assert!(ended.says("last words"), "{:?}", ended.log);
    rig.has_templates(0).await;
    let reply = rig.post("/v2/sandboxes", json!({ "templateID": "broken" })).await;
    assert_eq!(reply.status, StatusCode::NOT_FOUND, "{}", reply.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_ends_a_build() {
    let mut rig = Rig::local().await;
    let build = rig.register(json!({ "name": "endless" })).await;
    let order =
        json!({ "fromTemplate": "base", "steps": [{ "type": "RUN", "args": ["echo here; sleep 600"] }] });
    assert_eq!(rig.start(&build, order).await.status, StatusCode::ACCEPTED);
    let target = format!("/templates/{}/builds/{}/status", build.template, build.id);
    while !rig.get(&target).await.text().contains("here") {}
    assert_eq!(rig.delete("/templates/endless").await.status, StatusCode::NO_CONTENT);
    assert_eq!(rig.get(&target).await.status, StatusCode::NOT_FOUND);
    rig.stop().await;
    rig.has_templates(0).await;
    rig.has_no_sandbox().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_built_is_refused_before_anything_is_done() {
    let rig = Rig::local().await;
    let build = rig.register(json!({ "name": "refused" })).await;
    let run = json!([{ "type": "RUN", "args": ["true"] }]);
    let missing = json!([{ "type": "COPY", "args": ["a", "b"], "filesHash": "c".repeat(64) }]);
    for (order, words) in [
        (json!({ "steps": run }), "exactly one"),
        (json!({ "fromImage": "a", "fromTemplate": "b", "steps": run }), "exactly one"),
        (json!({ "fromImage": "debian:12", "steps": run }), "sandbar template pull"),
        (json!({ "fromTemplate": "unknown", "steps": run }), "doesn't exist"),
        (
            json!({ "fromImage": "e2bdev/base", "fromImageRegistry": { "type": "registry" } }),
            "fromImageRegistry",
        ),
        (json!({ "fromTemplate": "base", "steps": [{ "type": "ADD", "args": ["a"] }] }), "step 1 (ADD)"),
        (json!({ "fromTemplate": "base", "steps": missing }), "not uploaded"),
        (
            json!({ "fromTemplate": "base", "steps": [{ "type": "COPY", "args": ["a", "b"], "filesHash": "../x" }] }),
            "hash",
        ),
    ] {
        let reply = rig.start(&build, order.clone()).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{order} {}", reply.text());
        assert_eq!(reply.json()["code"], json!(400));
        assert!(reply.text().contains(words), "{order} {}", reply.text());
    }
    // None of that has started it.
    let order = json!({ "fromTemplate": "base" });
    assert_eq!(rig.start(&build, order).await.status, StatusCode::ACCEPTED);
    assert_eq!(rig.ended(&build).await.status, "ready");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_for_an_upload_is_good_once_and_needs_no_key() {
    let rig = Rig::memory().await;
    let put = async |target: &str, body: &'static str| {
        ask(rig.address, Method::PUT, target, &[], body.into()).await.status
    };
    assert_eq!(put("/uploads/0000", "x").await, StatusCode::FORBIDDEN);
    let local = Rig::local().await;
    let build = local.register(json!({ "name": "a" })).await;
    let hash = "d".repeat(64);
    let target = format!("/templates/{}/files/{hash}", build.template);
    let link = local.get(&target).await.json();
    assert_eq!(link["present"], json!(false));
    let url = link["url"].as_str().unwrap().to_owned();
    let path = url.split_once(&local.address.to_string()).unwrap().1.to_owned();
    let sent = ask(local.address, Method::PUT, &path, &[], "x".into()).await;
    assert_eq!(sent.status, StatusCode::OK, "{}", sent.text());
    let sent = ask(local.address, Method::PUT, &path, &[], "x".into()).await;
    assert_eq!(sent.status, StatusCode::FORBIDDEN, "{}", sent.text());
    assert_eq!(local.get(&target).await.json()["present"], json!(true));
    let other = local.other_key().await;
    let foreign = local.ask(Method::GET, &target, &[("x-api-key", &other)], "").await;
    assert_eq!(foreign.status, StatusCode::NOT_FOUND);
    // What is no archive is said by the step that copies it.
    let steps = json!([{ "type": "COPY", "args": ["a", "b"], "filesHash": hash }]);
    let started = local.start(&build, json!({ "fromTemplate": "base", "steps": steps })).await;
    assert_eq!(started.status, StatusCode::ACCEPTED, "{}", started.text());
    let ended = local.ended(&build).await;
    assert_eq!((ended.status.as_str(), &ended.reason["step"]), ("error", &Value::from("1")));
    assert!(ended.reason["message"].as_str().unwrap().contains("tar"), "{}", ended.reason);
}

/// Neither a log, nor a result, nor what one has done again tells of another tenant's builds.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_tenant_has_built_is_nothing_to_another() {
    let mut rig = Rig::local().await;
    let keys = [rig.key.clone(), rig.other_key().await];
    let mut stamps = [const { String::new() }; 2];
    // Who builds, whether all is to be done again, and whether the result is known.
    for (who, force, is_cached) in [(0, false, false), (1, false, false), (1, true, false), (0, false, true)]
    {
        rig.key.clone_from(&keys[who]);
        let build = rig.register(json!({ "name": "same" })).await;
        let hash = rig.upload(&build, 'e', &[("a", "the same")]).await;
        let steps = json!([
            { "type": "COPY", "args": ["a", "a", "", ""], "filesHash": hash },
            { "type": "RUN", "args": ["date +%s%N > stamp"], "force": force },
        ]);
        let started = rig.start(&build, json!({ "fromTemplate": "base", "steps": steps })).await;
        assert_eq!(started.status, StatusCode::ACCEPTED, "{}", started.text());
        let ended = rig.ended(&build).await;
        assert_eq!(ended.status, "ready", "{} {:?}", ended.reason, ended.log);
        assert_eq!(ended.says("CACHED"), is_cached, "{who}: {:?}", ended.log);
        let made = rig.create(json!({ "templateID": "same" })).await;
        let stamp = rig.said(&made.id, "cat /home/user/stamp").await;
        assert_eq!(stamps[who] == stamp, is_cached, "{who}");
        assert!(!stamps.contains(&stamp) || is_cached, "a result of another tenant's");
        stamps[who] = stamp;
    }
}

/// The backend asks for READY, and nobody asks a second time.
#[tokio::test(flavor = "multi_thread")]
async fn a_creation_waits_for_its_template_to_be_ready_once() {
    let rig = Rig::local().await;
    let ready = "test -e /tmp/go && echo ready >> /tmp/readies";
    let order =
        json!({ "fromTemplate": "base", "startCmd": "sleep 1; touch /tmp/go; sleep 600", "readyCmd": ready });
    rig.build("slow", order).await;
    let made = rig.create(json!({ "templateID": "slow" })).await;
    assert_eq!(rig.said(&made.id, "cat /tmp/readies").await, "ready");

    // One that never is fails the build, and leaves nothing.
    let build = rig.register(json!({ "name": "never" })).await;
    let order =
        json!({ "fromTemplate": "base", "startCmd": "echo why not >&2; exit 3", "readyCmd": "false" });
    assert_eq!(rig.start(&build, order).await.status, StatusCode::ACCEPTED);
    let ended = rig.ended(&build).await;
    assert_eq!((ended.status.as_str(), &ended.reason["step"]), ("error", &json!("finalize")));
    assert!(ended.reason["message"].as_str().unwrap().contains("why not"), "{}", ended.reason);
    rig.has_templates(1).await;

    // One that is not this time is no sandbox.
    let (start, ready) = ("[ -z \"$FAIL\" ] || { echo why not >&2; exit 3; }; sleep 600", "[ -z \"$FAIL\" ]");
    let order = json!({ "fromTemplate": "base", "startCmd": start, "readyCmd": ready });
    rig.build("sometimes", order).await;
    let body = json!({ "templateID": "sometimes", "envVars": { "FAIL": "1" } });
    let refused = rig.post("/v2/sandboxes", body).await;
    assert!(refused.status.is_server_error(), "{}", refused.text());
    let body = refused.json();
    assert_eq!(body["error_code"], "sandbox_create_failed", "{body}");
    assert!(body["message"].as_str().unwrap().contains("why not"), "{body}");
    let listed = rig.get("/v2/sandboxes").await.json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    // The time of one that waited is its own.
    let made = rig.create(json!({ "templateID": "sometimes", "timeout": 100 })).await;
    let detail = rig.get(&format!("/sandboxes/{}", made.id)).await.json();
    let time = |name: &str| detail[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let left = time("endAt").duration_since(jiff::Timestamp::now()).as_secs();
    assert!((40..=100).contains(&left), "{detail}");
}

/// As Docker has it: a virtual environment leads to the system's Python.
#[tokio::test(flavor = "multi_thread")]
async fn links_that_lead_out_of_what_is_copied_are_copied_as_they_are() {
    let rig = Rig::local().await;
    let mut archive = tar::Builder::new(Vec::new());
    let links = [("env/bin/python3", "/usr/bin/python3"), ("env/up", "../../outside"), ("env/lib64", "lib")];
    for (name, target) in links {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        header.set_mode(0o777);
        archive.append_link(&mut header, name, target).unwrap();
    }
    let archive = archive.into_inner().unwrap();
    let build = rig.register(json!({ "name": "linked" })).await;
    let hash = rig.upload_tar(&build, 'f', archive).await;
    let mut places = vec!["/home/user/env"];
    if has_root() {
        places.push("/opt/env");
    }
    let steps: Vec<_> = places
        .iter()
        .map(|place| json!({ "type": "COPY", "args": ["env", place, "", ""], "filesHash": hash }))
        .collect();
    let started = rig.start(&build, json!({ "fromTemplate": "base", "steps": steps })).await;
    assert_eq!(started.status, StatusCode::ACCEPTED, "{}", started.text());
    let ended = rig.ended(&build).await;
    assert_eq!(ended.status, "ready", "{} {:?}", ended.reason, ended.log);
    let made = rig.create(json!({ "templateID": "linked" })).await;
    for place in places {
        let said = rig.said(&made.id, &format!("cd {place}; readlink bin/python3 up lib64; ls -A")).await;
        assert_eq!(said, "/usr/bin/python3\n../../outside\nlib\nbin\nlib64\nup", "{place}");
    }
}

/// A name hides nothing until something is built under it: a template may be made from the one whose name it takes.
#[tokio::test(flavor = "multi_thread")]
async fn a_template_may_take_the_name_of_a_built_in_one_and_be_made_of_it() {
    let rig = Rig::local().await;
    let build = rig.register(json!({ "name": "base" })).await;
    let before = rig.create(json!({ "templateID": "base" })).await;
    assert_eq!(rig.said(&before.id, "ls ~").await, "", "the server's own");
    let steps = json!([{ "type": "RUN", "args": ["touch mine"] }]);
    let started = rig.start(&build, json!({ "fromImage": "e2bdev/base", "steps": steps })).await;
    assert_eq!(started.status, StatusCode::ACCEPTED, "{}", started.text());
    assert_eq!(rig.ended(&build).await.status, "ready");
    let after = rig.create(json!({ "templateID": "base" })).await;
    assert_eq!(rig.said(&after.id, "ls ~").await, "mine");
    let missing = rig.post("/v2/sandboxes", json!({ "templateID": "base:other" })).await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND, "{}", missing.text());
    assert!(missing.text().contains("no build with the tag 'other'"), "{}", missing.text());
}
