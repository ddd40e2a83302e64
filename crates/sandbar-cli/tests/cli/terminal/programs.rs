//! Programs that draw, in a shell in a sandbox.

use std::fmt::Write;

use crate::harness::Home;
use crate::terminal::pane::{Pane, has_inside};

/// A sandbox and a terminal with a shell in it.
fn shell(home: &Home) -> Option<(String, Pane)> {
    let pane = Pane::open(home)?;
    let id = home.create(&["--name", "demo"]);
    pane.enters("\"$sandbar\" shell demo -e PS1='inner> '; echo code=$?");
    pane.wait_for("user@");
    pane.enters("PS1='inner> '; clear");
    pane.wait_for_line("inner>");
    Some((id, pane))
}

#[test]
fn vim_edits_and_saves_a_file() {
    let home = Home::new();
    if !has_inside("vim") {
        return;
    }
    let Some((id, pane)) = shell(&home) else { return };
    pane.enters("vim -u NONE note");
    pane.wait_until("an empty file", |screen| {
        screen.lines().filter(|line| line.starts_with('~')).count() > 20
    });
    pane.types("ihällo 世界");
    pane.wait_for("hällo 世界");
    pane.presses("Escape");
    pane.enters(":wq");
    pane.wait_for_line("inner>");
    assert_eq!(home.text(&["exec", &id, "--", "cat", "/home/user/note"]), "hällo 世界");
    assert_eq!(pane.knows("#{alternate_on}"), "0");
}

#[test]
fn nano_edits_and_saves_a_file() {
    let home = Home::new();
    if !has_inside("nano") {
        return;
    }
    let Some((id, pane)) = shell(&home) else { return };
    pane.enters("nano note");
    pane.wait_for("GNU nano");
    pane.types("written by nano");
    pane.wait_for("written by nano");
    pane.presses("C-o");
    pane.wait_for("File Name to Write");
    pane.presses("Enter");
    pane.wait_for("Wrote 1 line");
    pane.presses("C-x");
    pane.wait_for_line("inner>");
    assert_eq!(home.text(&["exec", &id, "--", "cat", "/home/user/note"]), "written by nano");
}

#[test]
fn htop_draws_and_quits() {
    let home = Home::new();
    if !has_inside("htop") {
        return;
    }
    let Some((_, pane)) = shell(&home) else { return };
    pane.enters("htop");
    pane.wait_for("F10Quit");
    pane.wait_for("CPU%");
    pane.types("q");
    pane.wait_for_line("inner>");
    pane.enters("exit 5");
    pane.wait_for("code=5");
}

#[test]
fn python_is_interrupted_stopped_and_continued() {
    let home = Home::new();
    if !has_inside("python3") || !has_inside("bash") {
        return;
    }
    let Some((_, pane)) = shell(&home) else { return };
    pane.enters("python3 -q");
    pane.wait_for(">>>");
    pane.enters("while True: pass");
    pane.wait_for("...");
    pane.presses("Enter");
    pane.presses("C-c");
    pane.wait_for("KeyboardInterrupt");
    pane.presses("C-z");
    pane.wait_for("Stopped");
    pane.wait_for_line("inner>");
    pane.enters("clear; fg");
    pane.wait_for_line("python3 -q");
    pane.enters("print('still', 6 * 7)");
    pane.wait_for_line("still 42");
    pane.presses("C-d");
    pane.enters("echo back-$((1+1))");
    pane.wait_for_line("back-2");
}

#[test]
fn a_resize_reaches_the_terminal_and_the_program_in_it() {
    let home = Home::new();
    let Some((_, pane)) = shell(&home) else { return };
    pane.enters("stty size");
    pane.wait_for_line("30 100");
    pane.resizes(90, 25);
    pane.enters("until [ \"$(stty size)\" = '25 90' ]; do sleep 0.05; done; echo 'told of it'");
    pane.wait_for_line("told of it");
    pane.enters("sh -c 'trap \"echo now \\$(stty size)\" WINCH; echo ready; while :; do sleep 0.05; done'");
    pane.wait_for_line("ready");
    pane.resizes(120, 40);
    pane.wait_for_line("now 40 120");
    pane.presses("C-c");
    pane.enters("echo after");
    pane.wait_for_line("after");
}

#[test]
fn wide_and_combined_characters_pass_both_ways() {
    let home = Home::new();
    let Some((id, pane)) = shell(&home) else { return };
    let text = "日本語 ñ é ω 𝄞";
    pane.enters("echo 'go'; IFS= read -r line; printf %s \"$line\" > typed; echo saved");
    pane.wait_for_line("go");
    pane.enters(text);
    pane.wait_for_line("saved");
    assert_eq!(home.text(&["exec", &id, "--", "cat", "/home/user/typed"]), text);
    pane.enters("clear; cat typed; echo");
    pane.wait_for_line(text);
}

#[test]
fn a_paste_of_64_kib_arrives_whole() {
    let home = Home::new();
    let Some((id, pane)) = shell(&home) else { return };
    // Lines, as a terminal takes no longer ones than 4095; each looks like a key of ours.
    let mut lines = String::new();
    for number in 0..1024 {
        writeln!(lines, "~.{number:061}").unwrap();
    }
    assert_eq!(lines.len(), 64 << 10);
    let file = home.current().join("paste");
    std::fs::write(&file, &lines).unwrap();
    pane.enters("stty -echo; echo 'go'; cat > pasted; stty echo; echo taken");
    pane.wait_for_line("go");
    pane.pastes(&file);
    crate::harness::wait_until("the last line", || {
        home.run(&["exec", &id, "--", "cat", "/home/user/pasted"]).stdout.len() >= lines.len()
    });
    pane.presses("C-d");
    pane.wait_for_line("taken");
    assert_eq!(home.text(&["exec", &id, "--", "cat", "/home/user/pasted"]), lines.trim_end());
}

#[test]
fn a_flood_of_output_can_be_interrupted() {
    let home = Home::new();
    let Some((_, pane)) = shell(&home) else { return };
    pane.enters("yes flooded");
    pane.wait_until("a flood", |screen| screen.lines().filter(|line| *line == "flooded").count() > 20);
    pane.presses("C-c");
    pane.enters("clear; echo dry-$((1+1))");
    pane.wait_for_line("dry-2");
}
