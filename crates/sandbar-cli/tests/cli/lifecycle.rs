use serde_json::json;

use crate::harness::{Home, PATIENCE, both, code, signal_to, start};

#[test]
fn create_prints_the_id_alone_and_everything_takes_ids_names_and_beginnings() {
    let home = Home::new();
    let output = home.run(&["create", "--name", "demo", "--label", "team=core", "--deadline", "1h"]);
    assert_eq!(code(&output), 0, "{}", both(&output));
    let id = String::from_utf8(output.stdout.clone()).unwrap();
    let id = id.strip_suffix('\n').unwrap();
    assert!(id.bytes().all(|b| b.is_ascii_alphanumeric()), "{}", both(&output));
    assert!(output.stderr.is_empty(), "{}", both(&output));
    for known in [id, "demo", &id[..id.len() - 3]] {
        assert_eq!(home.text(&["exec", known, "--", "echo", "here"]), "here");
        assert_eq!(home.json(&["describe", known, "--json"])["id"], id);
    }
    assert_eq!(code(&home.run(&["destroy", "demo"])), 0);
    assert_eq!(code(&home.run(&["describe", id])), 1);
    home.assert_empty();
}

#[test]
fn an_ambiguous_beginning_is_refused_and_destroys_nothing() {
    let home = Home::new();
    let ids: Vec<_> = (0..2).map(|_| home.create(&[])).collect();
    let shared = ids[0].bytes().zip(ids[1].bytes()).take_while(|(a, b)| a == b).count();
    if shared == 0 {
        eprintln!("skipped: the two ids have no beginning in common");
        return;
    }
    let output = home.run(&["destroy", &ids[0][..shared]]);
    assert_eq!(code(&output), 125, "{}", both(&output));
    assert!(both(&output).contains(&ids[0]) && both(&output).contains(&ids[1]));
    assert_eq!(home.count(), 2);
}

#[test]
fn an_id_that_is_gone_never_means_another_sandbox() {
    let home = Home::new();
    let gone = home.create(&[]);
    let output = home.run(&["create", "--name", &gone]);
    assert_eq!(code(&output), 2, "{}", both(&output));
    assert!(both(&output).contains("shaped like an id"), "{}", both(&output));
    assert_eq!(code(&home.run(&["destroy", &gone])), 0);
    assert_eq!(code(&home.run(&["destroy", &gone])), 1);

    // A name goes before the beginning of another's id.
    let id = home.create(&[]);
    let beginning = &id[..12];
    let named = home.create(&["--name", beginning]);
    assert_eq!(home.json(&["describe", beginning, "--json"])["id"], named);
    assert_eq!(code(&home.run(&["destroy", beginning])), 0);
    assert_eq!(home.json(&["describe", beginning, "--json"])["id"], id);
    assert_eq!(code(&home.run(&["destroy", beginning])), 0);
    home.assert_empty();
}

#[test]
fn a_name_is_unique() {
    let home = Home::new();
    home.create(&["--name", "demo"]);
    let output = home.run(&["create", "--name", "demo"]);
    assert_eq!(code(&output), 125, "{}", both(&output));
    assert_eq!(home.count(), 1);
}

#[test]
fn destroy_goes_on_after_one_that_is_absent() {
    let home = Home::new();
    let (one, two) = (home.create(&[]), home.create(&[]));
    let output = home.run(&["destroy", "--json", &one, "no-such-sandbox", &two]);
    assert_eq!(code(&output), 1, "{}", both(&output));
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        printed,
        json!({"version": 1, "destroyed": [one, two], "absent": ["no-such-sandbox"], "failed": []})
    );
    assert_eq!(home.count(), 0);
}

#[test]
fn ls_filters_by_label_and_state() {
    let home = Home::new();
    let core = home.create(&["--label", "team=core", "--label", "x=1"]);
    home.create(&["--label", "team=web"]);
    let ids = |arguments: &[&str]| -> Vec<String> {
        let listed = home.json(&[&["ls", "--json"], arguments].concat());
        let records = listed.as_array().unwrap().iter();
        records.map(|record| record["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&[]).len(), 2);
    assert_eq!(ids(&["--label", "team=core"]), std::slice::from_ref(&core));
    assert_eq!(
        ids(&["--label", "team=core", "--label", "x=1", "--state", "running"]),
        std::slice::from_ref(&core)
    );
    assert!(ids(&["--label", "team=core", "--label", "x=2"]).is_empty());
    assert!(ids(&["--state", "stopped"]).is_empty());
    assert!(home.text(&["ls"]).contains(&core));
}

#[test]
fn kept_sandboxes_stay_and_others_do_not() {
    let home = Home::new();
    let output = home.run(&["run", "--keep", "--name", "kept", "--", "sh", "-c", "echo x > file; exit 4"]);
    assert_eq!(code(&output), 4, "{}", both(&output));
    // Standard error is no terminal here.
    assert!(output.stderr.is_empty(), "{}", both(&output));
    assert_eq!(home.text(&["exec", "kept", "--", "cat", "file"]), "x");
    let kept = home.json(&["run", "--keep", "--json", "--", "true"]);
    assert_eq!(home.count(), 2);
    assert_eq!(code(&home.run(&["destroy", "kept", kept["id"].as_str().unwrap()])), 0);
    assert_eq!(code(&home.run(&["run", "--", "true"])), 0);
    home.assert_empty();
}

#[test]
fn a_sandbox_is_kept_whatever_its_command_did_and_told_of() {
    let home = Home::new();
    for (wanted, arguments) in [
        (127, &["--", "no-such-program"][..]),
        (126, &["--", "/etc/passwd"]),
        (125, &["-w", "/no/such/folder", "--", "true"]),
        (125, &["--out", "/no/such/file:out", "--", "true"]),
        (125, &["--copy", "/etc/passwd:/proc/x", "--", "true"]),
    ] {
        let output = home.run(&[&["run", "--keep"], arguments].concat());
        assert_eq!(code(&output), wanted, "{}", both(&output));
        let text = String::from_utf8_lossy(&output.stderr);
        let id = text.lines().find_map(|line| line.strip_prefix("sandbar: kept sandbox ")).expect(&text);
        assert_eq!(home.text(&["exec", id, "--", "echo", "there"]), "there");

        let output = home.run(&[&["run", "--keep", "--json"], arguments].concat());
        assert_eq!(code(&output), wanted, "{}", both(&output));
        let printed: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        assert!(printed["error"]["message"].is_string(), "{printed}");
        assert_eq!(code(&home.run(&["destroy", id, printed["kept"].as_str().unwrap()])), 0);
    }
    // What was refused before there was one is not kept.
    let output = home.run(&["run", "--keep", "-t", "no-such-template", "--", "true"]);
    assert!(!both(&output).contains("kept"), "{}", both(&output));
    home.assert_empty();
}

#[test]
fn environment_user_and_folder_reach_the_command() {
    let home = Home::new();
    std::fs::write(home.current().join("env"), "# comment\nFILE=from file\nBOTH=file\n").unwrap();
    let mut command = home.sandbar(&[
        "run",
        "--env-file",
        "env",
        "-e",
        "BOTH=typed",
        "-e",
        "MINE",
        "-w",
        "/tmp",
        "--",
        "sh",
        "-c",
        "echo \"$FILE|$BOTH|$MINE|$(pwd)|$(id -un)\"",
    ]);
    let output = command.env("MINE", "a=b c").output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        "from file|typed|a=b c|/tmp|user",
        "{}",
        both(&output)
    );
    let id = home.create(&["-e", "STORED=1"]);
    assert_eq!(home.text(&["exec", &id, "-e", "OWN=2", "--", "sh", "-c", "echo $STORED$OWN"]), "12");
}

#[test]
fn the_provider_is_what_was_typed_then_what_the_environment_says() {
    let (home, other) = (Home::new(), Home::new());
    let id = home.create(&[]);
    let url = format!("local:{}", home.data().display());
    assert_eq!(code(&other.run(&["describe", &id])), 1);
    assert_eq!(code(&other.run(&["describe", &id, "--provider", &url])), 0);
    assert_eq!(code(&other.sandbar(&["describe", &id]).env("SANDBAR_URL", &url).output().unwrap()), 0);
    let typed = other.sandbar(&["--provider", "local", "describe", &id]).env("SANDBAR_URL", &url).output();
    assert_eq!(code(&typed.unwrap()), 1);
}

/// A sandbox lives on after the command that made it, and what its caller had open does not.
#[test]
fn what_a_caller_has_open_ends_with_the_command() {
    let home = Home::new();
    // Another copy of the pipe that this reads, at a number of its own; it ends when all that have it are gone.
    let leak = |arguments: &[&str]| {
        let mut command = home.sandbar_by(&["sh", "-c", "exec 3>&1; \"$0\" \"$@\""], arguments);
        let mut child = start(&mut command);
        let mut output = child.stdout.take().expect("a pipe");
        let (told, read) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = std::io::Read::read_to_string(&mut output, &mut text);
            let _ = told.send(text);
        });
        assert!(child.wait().expect("it ends").success(), "{arguments:?}");
        read.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("somebody still has the pipe of {arguments:?}"))
    };
    let id = leak(&["create"]).trim().to_owned();
    assert_eq!(home.text(&["exec", &id, "--", "echo", "well"]), "well");
    // A shim that takes over is started by another command.
    let record =
        std::fs::read(home.data().join("sandboxes").join(&id).join("record.json")).expect("a record");
    let record: serde_json::Value = serde_json::from_slice(&record).expect("JSON");
    let shim = record["private"]["shim"]["pid"].as_i64().expect("the shim");
    signal_to(i32::try_from(shim).expect("a process"), "KILL");
    assert_eq!(leak(&["exec", &id, "--", "echo", "still well"]), "still well\n");
    home.text(&["destroy", &id]);
}
