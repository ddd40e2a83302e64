use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::server::Servers;
use super::{packages, scripts};

/// Longest run of one column: some hundred cases, each of them bounded by itself.
const LONGEST_RUN: Duration = Duration::from_mins(10);
/// Between two looks at a program that runs.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What is tried, and in which language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Js,
    Python,
    InterpreterJs,
    InterpreterPython,
    Cli,
    DomainJs,
    DomainPython,
}

/// How Python is called; there is one way only elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Only,
    Sync,
    Async,
}

impl Kind {
    pub(super) const ALL: [Self; 7] = [
        Self::Js,
        Self::Python,
        Self::InterpreterJs,
        Self::InterpreterPython,
        Self::Cli,
        Self::DomainJs,
        Self::DomainPython,
    ];

    /// Where its releases stand in `releases.json`.
    pub(super) fn list(self) -> &'static str {
        match self {
            Self::Js | Self::DomainJs => "js",
            Self::Python | Self::DomainPython => "python",
            Self::InterpreterJs => "interpreter-js",
            Self::InterpreterPython => "interpreter-python",
            Self::Cli => "cli",
        }
    }

    /// The cases that it runs.
    fn suite(self) -> &'static str {
        match self {
            Self::Js | Self::Python => "e2b",
            Self::InterpreterJs | Self::InterpreterPython => "interpreter",
            Self::Cli => "cli",
            Self::DomainJs | Self::DomainPython => "domain",
        }
    }

    pub(super) fn is_python(self) -> bool {
        matches!(self, Self::Python | Self::InterpreterPython | Self::DomainPython)
    }

    pub(super) fn is_interpreter(self) -> bool {
        matches!(self, Self::InterpreterJs | Self::InterpreterPython)
    }

    pub(super) fn is_domain(self) -> bool {
        matches!(self, Self::DomainJs | Self::DomainPython)
    }

    pub(super) fn ways(self) -> &'static [Way] {
        match self {
            Self::Python | Self::InterpreterPython => &[Way::Sync, Way::Async],
            Self::DomainPython => &[Way::Sync],
            _ => &[Way::Only],
        }
    }
}

/// A release in one way of using it: what is run by one program, and a column of the document.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) kind: Kind,
    pub(super) way: Way,
    pub(super) package: String,
    /// What is installed with it.
    pub(super) with: Vec<String>,
    pub(super) release: String,
    pub(super) is_full: bool,
}

/// What became of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    Failed,
    /// The release does not have it.
    Absent,
    /// The machine does not have what it needs.
    Skipped,
}

#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) case: String,
    pub(super) verdict: Verdict,
    pub(super) why: String,
}

impl Column {
    /// The table that it is in.
    pub(super) fn table(&self) -> String {
        let (language, way) = match self.way {
            Way::Only => ("JavaScript", ""),
            Way::Sync => ("Python", ", sync"),
            Way::Async => ("Python", ", async"),
        };
        let domain = if self.kind.is_domain() { ", with a domain" } else { "" };
        format!("`{}` for {language}{way}{domain}", self.package)
    }

    /// What it is called in complaints, and for `--column`.
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.table(), self.release)
    }

    /// Runs its cases.
    pub(super) fn run(&self, servers: &Servers, only: Option<&str>) -> Result<Vec<Outcome>, String> {
        let mut command = self.command();
        command.args(["--suite", self.kind.suite()]);
        if !self.is_full {
            command.arg("--smoke");
        }
        if let Some(only) = only {
            command.args(["--only", only]);
        }
        servers.environment(&mut command, self.kind)?;
        let child = command
            .current_dir(servers.folder())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("could not be started: {e}"))?;
        let outcomes = outcomes(&output(child)?)?;
        if outcomes.is_empty() && only.is_none() {
            return Err("no case was run".into());
        }
        Ok(outcomes)
    }

    fn command(&self) -> Command {
        let folder = packages::folder(self);
        let mut command = if self.kind.is_python() {
            let mut command = Command::new("python3");
            // Nothing of the user's own is found, and what it compiles stays out of the sources.
            command
                .env("PYTHONPATH", &folder)
                .env("PYTHONNOUSERSITE", "1")
                .env("PYTHONDONTWRITEBYTECODE", "1");
            command.arg(scripts().join("python/run.py"));
            command
        } else {
            let mut command = Command::new(packages::node());
            command.arg(scripts().join("js/run.mjs")).arg("--packages").arg(&folder);
            command
        };
        command.args(match self.way {
            Way::Only => &[][..],
            Way::Sync => &["--way", "sync"],
            Way::Async => &["--way", "async"],
        });
        // What a developer has set for another server.
        for name in [
            "E2B_DOMAIN",
            "E2B_DEBUG",
            "E2B_ACCESS_TOKEN",
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "http_proxy",
            "https_proxy",
        ] {
            command.env_remove(name);
        }
        command
    }
}

/// What a program prints, until it ends or has had its time.
fn output(mut child: Child) -> Result<String, String> {
    let mut stdout = child.stdout.take().ok_or("no output")?;
    let reader = thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    let end = Instant::now() + LONGEST_RUN;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            break status;
        }
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("not done after {} s", LONGEST_RUN.as_secs()));
        }
        thread::sleep(LOOK_EVERY);
    };
    let text = reader.join().map_err(|_| "its output could not be read")?.map_err(|e| e.to_string())?;
    if status.success() { Ok(text) } else { Err(format!("ended with {status}")) }
}

fn outcomes(text: &str) -> Result<Vec<Outcome>, String> {
    let mut outcomes = Vec::new();
    for line in text.lines() {
        let Ok(told) = serde_json::from_str::<Value>(line) else {
            return Err(format!("printed what is no outcome: `{line}`"));
        };
        let verdict = match told["outcome"].as_str() {
            Some("passed") => Verdict::Passed,
            Some("failed") => Verdict::Failed,
            Some("absent") => Verdict::Absent,
            Some("skipped") => Verdict::Skipped,
            _ => return Err(format!("printed what is no outcome: `{line}`")),
        };
        let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
        outcomes.push(Outcome { case: text("case"), verdict, why: text("why") });
    }
    Ok(outcomes)
}
