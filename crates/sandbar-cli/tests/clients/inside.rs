use std::path::Path;
use std::process::Output;

use sandbar_rig::Rig;
use serde_json::Value;

use crate::harness::{Home, both, code};

/// The list of authorities of a sandbox: the one of this machine, in which the rig's own is.
pub(crate) const TRUSTED: &str = "/etc/ssl/certs/ca-certificates.crt";
/// What says to programs with a list of their own to use that one, and to pip and npm to try once and not for long. That is the programs' own way of giving up: where
/// they end for another reason, the answer was there.
const ENVIRONMENT: &[&str] = &[
    "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt",
    "NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt",
    "REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt",
    "PIP_CERT=/etc/ssl/certs/ca-certificates.crt",
    "GIT_SSL_CAINFO=/etc/ssl/certs/ca-certificates.crt",
    "PIP_DISABLE_PIP_VERSION_CHECK=1",
    "npm_config_update_notifier=false",
];

/// A sandbox in a rig.
pub(crate) struct Inside {
    pub(crate) rig: Rig,
    pub(crate) home: Home,
    pub(crate) id: String,
}

impl Inside {
    /// With these options.
    pub(crate) fn new(rig: Rig, options: &[&str]) -> Self {
        let home = Home::new();
        let id = home.create(options);
        Self { rig, home, id }
    }

    /// May reach these.
    pub(crate) fn allowed(rig: Rig, rules: &[&str]) -> Self {
        let options: Vec<&str> = rules.iter().flat_map(|rule| ["--allow", rule]).collect();
        Self::new(rig, &options)
    }

    /// Runs a program in it.
    pub(crate) fn run(&self, argv: &[&str]) -> Output {
        let environment = ENVIRONMENT.iter().flat_map(|variable| ["-e", variable]);
        let mut line: Vec<&str> = vec!["exec", &self.id, "--timeout", "2m"];
        line.extend(environment);
        line.push("--");
        line.extend(argv);
        self.home.run(&line)
    }

    /// The same, where it is to work; what it wrote.
    #[track_caller]
    pub(crate) fn works(&self, argv: &[&str]) -> String {
        let output = self.run(argv);
        assert_eq!(code(&output), 0, "{argv:?}: {}\n{}", both(&output), self.log());
        String::from_utf8(output.stdout).expect("text")
    }

    /// The same, where it is to work and writes JSON.
    #[track_caller]
    pub(crate) fn json(&self, argv: &[&str]) -> Value {
        serde_json::from_str(&self.works(argv)).expect("JSON")
    }

    /// The same, where it is to fail with this code and these words.
    #[track_caller]
    pub(crate) fn fails(&self, argv: &[&str], expected: i32, words: &str) {
        let output = self.run(argv);
        let text = both(&output);
        assert!(code(&output) == expected && text.contains(words), "{argv:?}: {text}\n{}", self.log());
    }

    /// What was decided, for a person.
    pub(crate) fn log(&self) -> String {
        self.home.text(&["egress", "log", &self.id])
    }

    /// Checks that all that tells of a denial does, and that nobody outside was asked about `name`.
    #[track_caller]
    pub(crate) fn is_denied(&self, name: &str) {
        let log = self.log();
        let line = log.lines().find(|line| line.contains(name));
        let is_told = line.is_some_and(|line| {
            line.contains("denied") && line.contains("the sandbox's egress policy does not allow this host")
        });
        assert!(is_told, "`{name}`: {log}");
        let why = self.home.run(&["egress", "why", &self.id, name]);
        let text = String::from_utf8_lossy(&why.stdout);
        let is_told = text.contains("egress policy does not allow") && text.contains("retry");
        assert!(code(&why) == 1 && is_told, "{}", both(&why));
        assert!(self.rig.queries(name).is_empty(), "somebody asked for `{name}`");
    }
}

/// Whether something that a test needs is on this machine; the test says why it skips.
pub(crate) fn has(path: &str) -> bool {
    let is_there = Path::new(path).exists();
    if !is_there {
        eprintln!("skipped: `{path}` is not on this machine");
    }
    is_there
}
