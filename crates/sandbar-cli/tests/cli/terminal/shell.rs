//! `shell`, `run -T` and `exec -T` themselves.

use crate::harness::{Home, both, code, wait_until};
use crate::terminal::pane::{Pane, has_inside};

#[test]
fn without_a_terminal_it_is_a_usage_error_and_nothing_runs() {
    let home = Home::new();
    let id = home.create(&[]);
    for arguments in [&["shell", &id][..], &["exec", &id, "-T", "--", "true"], &["run", "-T", "--", "true"]] {
        let output = home.run(arguments);
        assert_eq!(code(&output), 2, "{}", both(&output));
        assert!(both(&output).contains("standard input is not a terminal"), "{}", both(&output));
        assert!(both(&output).contains("hint: "), "{}", both(&output));
        let output = home.run(&[&["--json"], arguments].concat());
        assert_eq!(code(&output), 2, "{}", both(&output));
        assert!(both(&output).contains("JSON"), "{}", both(&output));
    }
    assert_eq!(home.count(), 1);
}

#[test]
fn the_exit_code_and_the_environment_are_those_of_the_shell() {
    let home = Home::new();
    let Some(pane) = Pane::open(&home) else { return };
    home.create(&["--name", "demo"]);
    let before = pane.settings();
    assert!(before.contains(" icanon") && before.contains(" icrnl"), "{before}");
    pane.enters("COLORTERM=truecolor LANG=C.UTF-8 \"$sandbar\" shell demo; echo code=$?");
    pane.wait_for("user@");
    pane.enters("echo it:$TERM:$COLORTERM:$LANG:$HOME:$PWD:$-");
    pane.wait_for("it:tmux-256color:truecolor:C.UTF-8:/home/user:/home/user:");
    pane.enters("echo 'shell' ${BASH_VERSION:+is bash}; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && tty");
    if has_inside("bash") {
        pane.wait_for_line("shell is bash");
    }
    pane.wait_for_line("/dev/pts/0");
    pane.enters("exit 77");
    pane.wait_for("code=77");
    assert_eq!(pane.settings(), before);
}

#[test]
fn a_sandbox_without_bash_gives_sh_and_a_command_is_run_instead() {
    let home = Home::new();
    let Some(pane) = Pane::open(&home) else { return };
    home.create(&["--name", "demo"]);
    pane.enters("\"$sandbar\" shell demo -e PATH=/nowhere; echo code=$?");
    pane.wait_for_line("$");
    pane.enters("echo this-is-$0; exit 3");
    pane.wait_for("this-is-/bin/sh");
    pane.wait_for("code=3");
    pane.clears();
    pane.enters("\"$sandbar\" shell demo -- sh -c 'exit 9'; echo code=$?");
    pane.wait_for("code=9");
    pane.enters("\"$sandbar\" shell demo -- no-such-program; echo code=$?");
    pane.wait_for("code=127");
    pane.enters("\"$sandbar\" shell no-such-sandbox; echo code=$?");
    pane.wait_for("code=125");
}

#[test]
fn run_and_exec_have_a_terminal_if_asked() {
    let home = Home::new();
    let Some(pane) = Pane::open(&home) else { return };
    pane.enters("\"$sandbar\" run -T -- sh -c 'stty size; read line; echo got-$line; exit 4'; echo code=$?");
    pane.wait_for_line("30 100");
    pane.enters("typed");
    pane.wait_for("got-typed");
    pane.wait_for("code=4");
    home.assert_empty();
    home.create(&["--name", "demo"]);
    pane.enters("\"$sandbar\" exec demo -T --timeout 1s -- sh -c 'stty raw -echo; sleep 60'; echo code=$?");
    pane.wait_for("code=124");
    assert!(pane.settings().contains(" icanon"));
    pane.enters("\"$sandbar\" exec demo -T -- sh -c 'echo ready; exec sleep 60'; echo code=$?");
    pane.wait_for_line("ready");
    pane.presses("C-c");
    pane.wait_for("code=130");
}

#[test]
fn it_is_left_by_a_key_and_gone_back_to() {
    let home = Home::new();
    let Some(pane) = Pane::open(&home) else { return };
    let id = home.create(&["--name", "demo"]);
    let before = pane.settings();
    pane.enters("\"$sandbar\" shell demo; echo code=$?");
    pane.wait_for("user@");
    pane.enters("PS1='inner> '; kept=safe");
    pane.wait_for_line("inner>");
    pane.types("~");
    pane.types("?");
    pane.wait_for("~.   detach");
    pane.types("~");
    pane.types(".");
    pane.wait_for("code=129");
    pane.wait_for(&format!("sandbar attach {id} "));
    assert_eq!(pane.settings(), before);
    let started = home.json(&["ps", "demo", "--started", "--json"]);
    let pid = started["processes"][0]["pid"].to_string();
    assert_eq!(started["processes"][0]["input"], "terminal", "{started}");
    pane.enters(&format!("\"$sandbar\" attach demo {pid}; echo code=$?"));
    pane.enters("");
    pane.wait_for_line("inner>");
    pane.enters("echo was-$kept; exit 6");
    pane.wait_for("was-safe");
    pane.wait_for("code=6");
    assert_eq!(pane.settings(), before);
}

#[test]
fn it_is_suspended_by_a_key_and_by_a_signal() {
    let home = Home::new();
    let Some(pane) = Pane::open(&home) else { return };
    home.create(&["--name", "demo"]);
    pane.enters("\"$sandbar\" shell demo -- sh; echo code=$?");
    pane.wait_for_line("$");
    pane.enters("PS1='inner> '");
    pane.wait_for_line("inner>");
    pane.types("~");
    pane.presses("C-z");
    pane.wait_until("the outer shell", |screen| screen.trim_end().ends_with("outer>"));
    assert!(pane.settings().contains(" icanon"));
    pane.enters("fg");
    pane.enters("echo back-$((1+1)); exit 8");
    pane.wait_for_line("back-2");
    pane.enters("echo code=$?");
    pane.wait_for_line("code=8");
}

#[test]
fn a_terminal_that_goes_away_takes_the_shell_with_it() {
    let home = Home::new();
    let Some(pane) = Pane::open(&home) else { return };
    home.create(&["--name", "demo"]);
    pane.enters("\"$sandbar\" shell demo");
    let count = || {
        let listed = home.json(&["ps", "demo", "--started", "--json"]);
        listed["processes"].as_array().map_or(0, Vec::len)
    };
    wait_until("the shell", || count() == 1);
    drop(pane);
    wait_until("its end", || count() == 0);
}
