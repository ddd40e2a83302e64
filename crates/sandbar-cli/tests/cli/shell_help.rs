use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::harness::{Home, both, code};

/// Every command, as the help lists them.
fn commands(home: &Home) -> Vec<String> {
    let help = home.text(&["--help"]);
    let lines =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn every_command_is_completed_and_has_a_page() {
    let home = Home::new();
    let names = commands(&home);
    assert!(names.len() > 8, "{names:?}");
    for shell in ["bash", "zsh", "fish"] {
        let script = home.text(&["completions", shell]);
        let form = home.json(&["completions", shell, "--json"]);
        assert_eq!((&form["shell"], form["script"].as_str().unwrap().trim_end()), (&shell.into(), &*script));
        for name in &names {
            assert!(script.contains(name.as_str()), "{shell}: {name}");
        }
    }
    home.text(&["man", "--to", "."]);
    for name in names.iter().filter(|name| *name != "help") {
        let page = fs::read_to_string(home.current().join(format!("sandbar-{name}.1"))).unwrap();
        assert!(
            page.contains(".TH") && page.contains("EXAMPLES") || page.contains("Example"),
            "{name}: {page}"
        );
        assert_eq!(home.text(&["man", name]), page.trim_end());
    }
    for words in [["network", "set"], ["egress", "log"], ["egress", "why"], ["egress", "verify"]] {
        let page = fs::read_to_string(home.current().join(format!("sandbar-{}.1", words.join("-")))).unwrap();
        assert!(page.contains(".TH") && page.contains("Examples"), "{words:?}: {page}");
        assert_eq!(home.text(&[&["man"], &words[..]].concat()), page.trim_end());
    }
    assert!(home.text(&["man"]).contains("sandbar"));
    assert!(
        !fs::read_dir(home.current())
            .unwrap()
            .flatten()
            .any(|entry| { entry.file_name().to_string_lossy().starts_with('.') })
    );
}

#[test]
fn bash_takes_the_script() {
    let home = Home::new();
    let mut bash = Command::new("bash")
        .args(["--norc", "-eu"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let script = home.text(&["completions", "bash"]);
    let ask = "\nCOMP_WORDS=(sandbar des); COMP_CWORD=1; set +eu; _sandbar sandbar des sandbar; echo \"${COMPREPLY[@]}\"\n";
    bash.stdin.take().unwrap().write_all((script + ask).as_bytes()).unwrap();
    let output = bash.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "describe destroy");
}

#[test]
fn what_has_no_page_or_place_is_usage() {
    let home = Home::new();
    for (arguments, part) in [
        (&["completions", "tcsh"][..], "bash, zsh, fish"),
        (&["man", "nothing"], "`sandbar help`"),
        (&["man", "--to", "no/such/folder"], "name a folder that exists"),
    ] {
        let output = home.run(arguments);
        assert_eq!(code(&output), 2, "{}", both(&output));
        assert!(String::from_utf8_lossy(&output.stderr).contains(part), "{}", both(&output));
    }
}
