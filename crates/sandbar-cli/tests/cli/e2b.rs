//! The same commands with the sandboxes behind a server that speaks E2B's API: ours.

use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::harness::{Home, both, code, wait_until};
use crate::serve::Serving;

/// A server, and the command line that knows its address and key.
struct Cloud {
    serving: Option<Serving>,
    home: Home,
}

impl Cloud {
    fn new() -> Self {
        let home = Home::new();
        Self { serving: Some(Serving::start(&home, 4)), home }
    }

    /// What the server printed to be pasted.
    fn value(&self, name: &str) -> &str {
        self.serving.as_ref().expect("it runs").value(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.home.sandbar(arguments);
        command.env("SANDBAR_URL", format!("e2b:{}", self.value("E2B_API_URL")));
        command.env("E2B_API_KEY", self.value("E2B_API_KEY"));
        command.output().expect("the executable starts")
    }

    /// Runs it, expects success, and answers its standard output without the last line end.
    fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(code(&output), 0, "sandbar {arguments:?}: {}", both(&output));
        String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
    }
}

impl Drop for Cloud {
    /// With the server goes what it keeps ready, which takes a moment.
    fn drop(&mut self) {
        self.serving = None;
        if !std::thread::panicking() {
            wait_until("an empty data folder", || self.home.left().is_empty());
        }
    }
}

#[test]
fn commands_end_with_the_codes_that_they_have_here() {
    let cloud = Cloud::new();
    for (arguments, wanted) in [
        (&["run", "--", "sh", "-c", "exit 7"][..], 7),
        (&["run", "--", "sh", "-c", "kill -9 $$"], 137),
        (&["run", "--", "no-such-program"], 127),
        (&["run", "--", "/etc/passwd"], 126),
        (&["run", "--timeout", "1s", "--", "sleep", "60"], 124),
        (&["run", "--memory", "1g", "--", "true"], 125),
        (&["run", "-t", "no-such-template", "--", "true"], 125),
        (&["describe", "no-such-sandbox"], 1),
        (&["destroy", "no-such-sandbox"], 1),
        (&["exec", "no-such-sandbox", "--", "true"], 125),
        (&["run", "--memory", "12q", "--", "true"], 2),
    ] {
        let output = cloud.run(arguments);
        assert_eq!(code(&output), wanted, "{arguments:?}: {}", both(&output));
    }
    assert_eq!(cloud.text(&["run", "--", "echo", "two  words"]), "two  words");
    assert_eq!(cloud.home.count(), 0);
}

#[test]
fn a_sandbox_is_made_used_put_to_sleep_and_ended() {
    let cloud = Cloud::new();
    let id = cloud.text(&["create", "--name", "kept", "--label", "a=b", "--deadline", "10m"]);
    assert_eq!(cloud.text(&["exec", "kept", "--", "echo", "inside"]), "inside");
    let described: Value = serde_json::from_str(&cloud.text(&["describe", "kept", "--json"])).expect("JSON");
    assert_eq!((described["id"].as_str(), described["labels"]["a"].as_str()), (Some(id.as_str()), Some("b")));
    assert_eq!(described["state"], "running");
    let taken = cloud.run(&["create", "--name", "kept"]);
    assert_eq!(code(&taken), 125, "{}", both(&taken));

    fs::write(cloud.home.current().join("file"), "from here").expect("a file");
    cloud.text(&["cp", "file", "kept:/tmp/file"]);
    assert_eq!(cloud.text(&["exec", "kept", "--", "cat", "/tmp/file"]), "from here");

    cloud.text(&["pause", "kept"]);
    let asleep = cloud.run(&["exec", "kept", "--", "true"]);
    assert_eq!(code(&asleep), 125, "{}", both(&asleep));
    assert!(both(&asleep).contains("sleeping"), "{}", both(&asleep));
    cloud.text(&["resume", "kept"]);
    cloud.text(&["cp", "kept:/tmp/file", "back"]);
    assert_eq!(fs::read_to_string(cloud.home.current().join("back")).expect("a file"), "from here");
    let listed: Value = serde_json::from_str(&cloud.text(&["ls", "--json"])).expect("JSON");
    assert_eq!(listed.as_array().map(Vec::len), Some(1));
    cloud.text(&["destroy", "kept"]);
    assert_eq!(cloud.text(&["ls", "--json"]), "[]");
    assert_eq!(cloud.home.count(), 0);
}

/// What is not told to the command line is not found by it.
#[test]
fn a_missing_or_wrong_key_is_told_with_the_way_to_give_it() {
    let cloud = Cloud::new();
    let url = format!("e2b:{}", cloud.value("E2B_API_URL"));
    let output = cloud.home.run(&["--provider", &url, "ls"]);
    assert_eq!(code(&output), 125, "{}", both(&output));
    assert!(both(&output).contains("E2B_API_KEY"), "{}", both(&output));
    let mut command = cloud.home.sandbar(&["--provider", &url, "ls"]);
    let output = command.env("E2B_API_KEY", "e2b_wrong0sentinel").output().expect("the executable starts");
    assert_eq!(code(&output), 125, "{}", both(&output));
    assert!(
        both(&output).contains("E2B_API_KEY") && !both(&output).contains("sentinel"),
        "{}",
        both(&output)
    );
}
