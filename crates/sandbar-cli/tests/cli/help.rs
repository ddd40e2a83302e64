use crate::harness::{Home, code};

/// Every command.
const COMMANDS: &[&str] = &[
    "run",
    "create",
    "exec",
    "shell",
    "attach",
    "ps",
    "kill",
    "watch",
    "logs",
    "ls",
    "describe",
    "destroy",
    "fork",
    "template",
    "volume",
    "cp",
    "import",
    "export",
    "port",
    "network",
    "egress",
    "stats",
    "resources",
    "usage",
    "serve",
    "key",
    "prune",
    "system",
    "capacity",
    "doctor",
    "completions",
    "man",
    "audit",
    "version",
];

/// Every command of a command: what it is called, and how it is typed.
const BELOW: &[(&str, &[&str])] = &[
    ("network demo set", &["network", "demo", "set"]),
    ("template import", &["template", "import"]),
    ("template pull", &["template", "pull"]),
    ("template ls", &["template", "ls"]),
    ("template show", &["template", "show"]),
    ("template rm", &["template", "rm"]),
    ("template export", &["template", "export"]),
    ("volume create", &["volume", "create"]),
    ("volume ls", &["volume", "ls"]),
    ("volume show", &["volume", "show"]),
    ("volume rm", &["volume", "rm"]),
    ("system df", &["system", "df"]),
    ("system init-store", &["system", "init-store"]),
    ("egress log", &["egress", "log"]),
    ("egress why", &["egress", "why"]),
    ("egress verify", &["egress", "verify"]),
];

fn check(name: &str, arguments: &[&str]) {
    let home = Home::new();
    insta::assert_snapshot!(name, home.transcript(arguments));
}

#[test]
fn help_of_everything() {
    check("help", &["--help"]);
    for command in COMMANDS {
        check(&format!("help_{command}"), &[command, "--help"]);
    }
    for (name, words) in BELOW {
        check(&format!("help_{}", name.replace(' ', "_")), &[words, &["--help"][..]].concat());
    }
}

#[test]
fn every_command_has_an_example_and_takes_json() {
    let home = Home::new();
    for command in COMMANDS {
        let help = home.text(&[command, "--help"]);
        assert!(help.contains("Example") && help.contains(&format!("  sandbar {command}")), "{help}");
        assert!(help.contains("--json"), "{help}");
    }
    for (name, words) in BELOW {
        let help = home.text(&[words, &["--help"][..]].concat());
        assert!(help.contains("Examples:") && help.contains(&format!("  sandbar {name}")), "{help}");
        assert!(help.contains("--json"), "{help}");
    }
}

#[test]
fn the_version_is_told() {
    let home = Home::new();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(home.text(&["version"]), format!("sandbar {version}"));
    assert_eq!(home.text(&["--version"]), format!("sandbar {version}"));
    assert_eq!(home.json(&["version", "--json"])["version"], version);
}

#[test]
fn no_command_is_a_usage_error_that_shows_the_commands() {
    let home = Home::new();
    let output = home.run(&[]);
    assert_eq!(code(&output), 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("Commands:"));
}
