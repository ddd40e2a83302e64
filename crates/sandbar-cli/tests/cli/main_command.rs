use serde_json::{Value, json};

use crate::harness::{Home, both, code, signal, start, wait_until};

#[test]
fn a_main_command_is_made_with_its_sandbox_and_its_words_are_shown() {
    let home = Home::new();
    let id = home.create(&[
        "--name",
        "web",
        "-w",
        "/tmp",
        "-e",
        "GREETING=hello there",
        "--",
        "sh",
        "-c",
        "echo \"$GREETING\"; pwd >&2; printf 'a\\377'; exec sleep 600",
    ]);
    wait_until("its words", || home.run(&["logs", "web"]).stdout.ends_with(b"\xff"));
    let output = home.run(&["logs", "web"]);
    assert_eq!(
        (code(&output), &output.stdout[..], &output.stderr[..]),
        (0, &b"hello there\na\xff"[..], &b"/tmp\n"[..])
    );
    assert_eq!(home.run(&["logs", "web", "--tail", "1"]).stdout, b"a\xff");
    assert_eq!(home.run(&["logs", "web", "--since", "2099-01-01T00:00:00Z"]).stdout, b"");

    let lines = home.run(&["logs", "web", "--json"]);
    let pieces: Vec<Value> = lines
        .stdout
        .split(|b| *b == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert!(
        pieces.iter().any(|piece| piece["stream"] == "stderr" && piece["data"] == "/tmp\n"),
        "{}",
        both(&lines)
    );
    assert!(pieces.iter().any(|piece| piece["data_base64"].is_string()), "{}", both(&lines));

    let record = home.json(&["describe", "web", "--json"]);
    let main = &record["main"];
    assert_eq!(
        (&main["program"], &main["state"], &main["restart"]),
        (&json!("sh"), &json!("running"), &json!("no"))
    );
    assert!(main["pid"].is_u64() && main["code"].is_null() && main["signal"].is_null(), "{main}");
    assert!(!record.to_string().contains("exec sleep"), "its arguments are its own: {record}");
    assert!(home.text(&["describe", &id]).contains("`sh` runs as process"));
}

#[test]
fn following_ends_with_the_command_or_with_us() {
    let home = Home::new();
    let id = home.create(&["--", "sh", "-c", "echo one; sleep 0.5; echo two; exit 3"]);
    let output = home.run(&["logs", &id, "-f"]);
    assert_eq!((code(&output), &output.stdout[..]), (0, &b"one\ntwo\n"[..]), "{}", both(&output));
    assert_eq!(home.json(&["describe", &id, "--json"])["main"]["code"], 3);

    let id = home.create(&["--", "sh", "-c", "echo up; exec sleep 600"]);
    let follower = start(&mut home.sandbar_in_foreground(&["logs", "-f", &id]));
    wait_until("it speaks", || home.run(&["logs", &id]).stdout == b"up\n");
    // Whether it follows already or is about to: it ends, and quietly.
    wait_until("its handler is there", || {
        std::fs::read_to_string(format!("/proc/{}/status", follower.id())).is_ok_and(|status| {
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
            u64::from_str_radix(caught.trim(), 16).is_ok_and(|mask| mask & 2 != 0)
        })
    });
    signal(&follower, "INT");
    let ended = follower.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", both(&ended));
}

#[test]
fn what_can_not_be_started_leaves_nothing_and_mistakes_are_usage() {
    let home = Home::new();
    let output = home.run(&["create", "--restart", "always", "--", "no-such-program"]);
    assert_eq!(code(&output), 125, "{}", both(&output));
    assert!(both(&output).contains("no-such-program"), "{}", both(&output));
    assert_eq!(home.count(), 0);
    for arguments in [
        &["create", "--restart", "always"][..],
        &["create", "--restart", "sometimes", "--", "true"],
        &["create", "-w", "/tmp"],
        &["logs", "x", "--tail", "few"],
        &["logs", "x", "--since", "yesterday"],
    ] {
        assert_eq!(code(&home.run(arguments)), 2, "{arguments:?}");
    }
    let id = home.create(&[]);
    let output = home.run(&["logs", &id]);
    assert_eq!(code(&output), 125, "{}", both(&output));
    assert!(both(&output).contains("main command") && both(&output).contains("hint"), "{}", both(&output));
    assert_eq!(code(&home.run(&["logs", "no-such-sandbox"])), 1);
}

#[test]
fn a_policy_starts_it_again() {
    let home = Home::new();
    let id = home.create(&["--restart", "on-failure", "--", "sh", "-c", "echo start; exit 1"]);
    wait_until("two restarts", || {
        home.json(&["describe", &id, "--json"])["main"]["restarts"].as_u64() >= Some(2)
    });
    assert!(home.run(&["logs", &id]).stdout.starts_with(b"start\nstart\n"));
}
