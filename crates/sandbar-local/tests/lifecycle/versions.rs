//! Older and newer: a shim, a library, an executable and a record of other versions work together, or say what to do.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command as Process, Stdio};

use sandbar_core::{
    Command, CreateOptions, ErrorKind, LimitDemand, MainCommand, ProviderExt, Resources, SandboxExt,
    SandboxProvider,
};
use sandbar_local::{LocalConfig, LocalProvider};
use serde_json::{Value, json};

use crate::support::{Bed, create, end_shim, shim_pid};

fn ask(folder: &Path, line: &str) -> Value {
    let mut stream = UnixStream::connect(folder.join("shim.sock")).expect("a shim");
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a bound");
    stream.write_all(format!("{line}\n").as_bytes()).expect("sent");
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).expect("an answer");
    serde_json::from_str(&answer).expect("JSON")
}

#[tokio::test]
async fn a_shim_answers_an_older_caller_and_tells_a_newer_one_what_it_speaks() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let folder = bed.folder(sandbox.id());
    let old = ask(&folder, r#"{"v":1,"op":"hello"}"#);
    assert_eq!(old["hello"]["version"], env!("CARGO_PKG_VERSION"));
    assert!(ask(&folder, r#"{"v":1,"op":"stats","later":true}"#)["stats"].is_object());
    for newer in [r#"{"v":5,"op":"hello"}"#, r#"{"v":99,"op":"levitate","height":3}"#] {
        assert_eq!(ask(&folder, newer), json!({"versions": [1, 2, 3, 4]}));
    }
    assert_eq!(ask(&folder, r#"{"v":2,"op":"levitate"}"#)["failed"]["kind"], "protocol");
    sandbox.destroy().await.expect("destroyed");
}

#[tokio::test]
async fn a_shim_of_another_version_is_named_with_the_way_out() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let folder = bed.folder(sandbox.id());
    for (versions, hint) in [("[1]", "older"), ("[7,8]", "newer")] {
        std::fs::rename(folder.join("shim.sock"), folder.join("real.sock")).expect("set aside");
        let listener = UnixListener::bind(folder.join("shim.sock")).expect("bound");
        let fake = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a connection");
            let mut reader = BufReader::new(stream);
            let mut line = String::new();
            reader.read_line(&mut line).expect("a request");
            reader.get_mut().write_all(format!("{{\"versions\":{versions}}}\n").as_bytes()).expect("sent");
            line
        });
        let more = Resources::default().with_memory_bytes(256 << 20);
        let resources = sandbox.require_resources().expect("the part");
        let error =
            resources.set_resources(more, LimitDemand::BestEffort).await.expect_err("it does not know that");
        assert_eq!(error.kind(), ErrorKind::Config, "{error:?}");
        assert!(
            error.message().contains(sandbox.id().as_str()) && error.hint().expect("a hint").contains(hint)
        );
        let asked: Value = serde_json::from_str(&fake.join().expect("no panic")).expect("JSON");
        assert_eq!((&asked["v"], &asked["op"]), (&json!(2), &json!("set_resources")));
        std::fs::rename(folder.join("real.sock"), folder.join("shim.sock")).expect("put back");
    }
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after the strangers").await;
}

/// What the executable reports to these orders.
fn order(orders: &Value) -> Value {
    let helper = std::env::var_os("SANDBAR_HELPER").expect("`SANDBAR_HELPER`");
    let mut child = Process::new(helper)
        .arg0("sandbar-shim")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("a pipe").write_all(format!("{orders}\n").as_bytes()).expect("sent");
    let output = child.wait_with_output().expect("its end");
    serde_json::from_slice(&output.stdout).expect("a report")
}

#[tokio::test]
async fn an_executable_refuses_orders_of_a_version_that_it_does_not_speak() {
    if std::env::var_os("SANDBAR_HELPER").is_none() {
        println!("skipped: `SANDBAR_HELPER` names no executable");
        return;
    }
    let report = order(&json!({"v": 9, "library": "9.9.9", "home": "/nowhere", "task": {"adopt": "s1"}}));
    let failed = &report["failed"];
    assert_eq!(failed["kind"], "config", "{report}");
    assert!(failed["message"].as_str().expect("a message").contains("9.9.9"), "{report}");
    assert!(failed["hint"].as_str().expect("a hint").contains("SANDBAR_HELPER"), "{report}");
}

#[tokio::test]
async fn a_main_command_is_never_passed_over_by_an_older_executable() {
    let Some(bed) = Bed::new() else { return };
    // It answers as one does that speaks version 1 alone, where it is given anything newer.
    let script = r#"#!/bin/sh
read -r line
case "$line" in
  *'"v":1,'*) echo '{"failed":{"kind":"unexpected","operation":"create","message":"it would have been made"}}' ;;
  *) echo '{"failed":{"kind":"config","operation":"create","message":"version 2 is not spoken","hint":"set `SANDBAR_HELPER`"}}' ;;
esac
"#;
    let helper = bed.scratch().join("old-sandbar");
    std::fs::write(&helper, script).expect("a script");
    std::fs::set_permissions(&helper, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("executable");
    let provider = LocalProvider::open(LocalConfig::new().with_home(bed.home()).with_helper(&helper))
        .expect("a provider");
    let plain = provider.create(CreateOptions::new()).await.expect_err("a fake");
    assert!(plain.message().contains("would have been made"), "what it knows it is asked as before: {plain}");
    let main = MainCommand::new(Command::new("true"));
    let error = provider.create(CreateOptions::new().with_main(main)).await.expect_err("a fake");
    assert_eq!(error.kind(), ErrorKind::Config, "{error:?}");
    assert!(error.hint().is_some_and(|hint| hint.contains("SANDBAR_HELPER")), "{error:?}");
}

#[tokio::test]
async fn records_of_other_versions_are_adopted_and_keep_what_is_not_known() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    end_shim(&bed, sandbox.id()).await;
    let mut record = bed.stored(sandbox.id());
    // An earlier version knew of no main command, a later one knows more.
    record.as_object_mut().expect("an object").remove("main");
    record["colour"] = json!("blue");
    record["private"]["depth"] = json!(3);
    std::fs::write(bed.folder(sandbox.id()).join("record.json"), record.to_string()).expect("written");
    let handle = bed.provider().require(sandbox.id()).await.expect("a handle");
    let output = handle.commands().run(&Command::shell("echo on")).await.expect("an output");
    assert_eq!(output.stdout_lossy(), "on\n");
    assert!(shim_pid(&bed, sandbox.id()).is_some(), "it was adopted");
    let after = bed.stored(sandbox.id());
    assert_eq!((&after["colour"], &after["private"]["depth"]), (&json!("blue"), &json!(3)));
    assert_eq!(handle.record().await.expect("a record").main, None);
    handle.destroy().await.expect("destroyed");
    bed.assert_empty("after the time traveller").await;
}
