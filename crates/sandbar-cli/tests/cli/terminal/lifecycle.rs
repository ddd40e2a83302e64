//! What becomes of the caller's terminal when the sandbox ends, or this program does.

use crate::harness::{Home, pid_of, signal_to, wait_until};
use crate::terminal::pane::{Pane, has_inside};

/// A terminal on which a program in a sandbox draws, having changed all that programs change.
fn drawing(home: &Home) -> Option<(String, Pane, String)> {
    let pane = Pane::open(home)?;
    let id = home.create(&["--name", "demo"]);
    let before = pane.settings();
    let script =
        "printf '\\033[?1049h\\033[?25l\\033[?1000h\\033[?1006h\\033[?2004h\\033[?1hdrawn'; exec sleep 600";
    pane.clears();
    pane.enters(&format!("\"$sandbar\" exec demo -T -- sh -c \"{script}\"; echo code=$?"));
    pane.wait_for_line("drawn");
    assert_eq!(pane.knows("#{alternate_on}#{cursor_flag}#{mouse_standard_flag}"), "101");
    Some((id, pane, before))
}

fn assert_given_back(pane: &Pane, before: &str, code: &str) {
    pane.wait_for(&format!("code={code}"));
    assert_eq!(
        pane.knows("#{alternate_on}#{cursor_flag}#{mouse_standard_flag}#{keypad_cursor_flag}"),
        "0100"
    );
    assert_eq!(pane.settings(), before);
}

#[test]
fn destroying_the_sandbox_gives_the_terminal_back() {
    let home = Home::new();
    let Some((id, pane, before)) = drawing(&home) else { return };
    home.text(&["destroy", &id]);
    assert_given_back(&pane, &before, "125");
}

#[test]
fn killing_all_of_the_sandbox_gives_the_terminal_back() {
    let home = Home::new();
    let Some((id, pane, before)) = drawing(&home) else { return };
    let record = std::fs::read(home.data().join("sandboxes").join(&id).join("record.json")).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    let agent = record["private"]["agent"]["pid"].as_i64().unwrap_or_else(|| panic!("{record}"));
    signal_to(i32::try_from(agent).unwrap(), "KILL");
    // Its last process may be seen to die before all of it is seen to be gone.
    pane.wait_until("its end", |screen| screen.contains("code=125") || screen.contains("code=137"));
    let code = if pane.screen().contains("code=125") { "125" } else { "137" };
    assert_given_back(&pane, &before, code);
}

#[test]
fn vim_that_is_killed_leaves_no_trace() {
    let home = Home::new();
    if !has_inside("vim") {
        return;
    }
    let Some(pane) = Pane::open(&home) else { return };
    home.create(&["--name", "demo"]);
    let before = pane.settings();
    pane.enters("\"$sandbar\" exec demo -T -- vim -u NONE; echo code=$?");
    pane.wait_for("VIM - Vi IMproved");
    let started = home.json(&["ps", "demo", "--started", "--json"]);
    home.text(&["kill", "demo", &started["processes"][0]["pid"].to_string(), "-s", "KILL"]);
    assert_given_back(&pane, &before, "137");
}

#[test]
fn signals_give_the_terminal_back() {
    let home = Home::new();
    for (signal, code) in [("TERM", "143"), ("QUIT", "131"), ("USR1", "138")] {
        let Some(pane) = Pane::open(&home) else { return };
        let id = home.create(&[]);
        let before = pane.settings();
        pane.enters(&format!(
            "\"$sandbar\" exec {id} -T -- sh -c 'echo ready; exec sleep 600'; echo code=$?"
        ));
        pane.wait_for_line("ready");
        let script = "echo ready; exec sleep 600";
        signal_to(pid_of(&["exec", &id, "-T", "--", "sh", "-c", script]), signal);
        pane.wait_for(&format!("code={code}"));
        assert_eq!(pane.settings(), before, "{signal}");
    }
}

#[test]
fn what_asks_a_shell_to_end_ends_it() {
    let home = Home::new();
    let Some(pane) = Pane::open(&home) else { return };
    let id = home.create(&[]);
    pane.enters(&format!("\"$sandbar\" shell {id}; echo code=$?"));
    let count = || home.json(&["ps", &id, "--json"])["processes"].as_array().map_or(0, Vec::len);
    wait_until("the shell", || count() > 0);
    signal_to(pid_of(&["shell", &id]), "HUP");
    pane.wait_for("code=129");
    wait_until("the end of all in it", || count() == 0);
}
