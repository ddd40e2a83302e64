//! `cargo xtask test`: all that has to hold before a change lands.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::crew::Job;
use crate::modes::{Mode, Stage};
use crate::run::{cargo, output, workspace};
use crate::scratch::Scratch;
use crate::{checks, crew, host, scratch};

/// Packages whose tests run again as an ordinary user: what they do depends on who does it.
const USER_PACKAGES: &[&str] =
    &["sandbar-engine", "sandbar-agent", "sandbar-local", "sandbar-cli", "sandbar-observe", "sandbar-rig"];

/// Tests (package and name) in which it makes no difference whether an ordinary user has one id or subordinate ones, and modules of those in which
/// it does for a part: with subordinate ids the others run only in `cargo xtask soak`, and where `SANDBAR_SOAK` is set, so that a run stays short. What leads out of
/// a sandbox is made alike in both, and `egress_life` runs in both.
const LIKE_SINGLE: &[(&str, &str, Part)] = &[
    ("sandbar-local", "egress", Part::Nothing),
    (
        "sandbar-local",
        "lifecycle",
        Part::Of(&[
            "archives::",
            "builds::",
            "commits::",
            "conformance::",
            "cycles_leave_nothing",
            "deaths::",
            "disk::",
            "forks",
            "kills_at_random_moments",
            "leftovers::",
            "parallel_creates",
            "pool::",
            "start::",
            "templates::",
            "volume",
        ]),
    ),
    (
        "sandbar-cli",
        "cli",
        Part::Of(&[
            "archive::",
            "copies::",
            "cp::",
            "doctor::",
            "forks::",
            "lifecycle::",
            "processes::",
            "templates::",
            "users::",
            "volumes::",
        ]),
    ),
    ("sandbar-cli", "clients", Part::Nothing),
    ("sandbar-cli", "sandbar_cli", Part::Nothing),
    ("sandbar-agent", "sandbar_agent", Part::Nothing),
    ("sandbar-agent", "output", Part::Nothing),
    ("sandbar-agent", "filesystem", Part::Nothing),
    ("sandbar-agent", "files", Part::Nothing),
    ("sandbar-observe", "contract", Part::Nothing),
    ("sandbar-observe", "observed", Part::Nothing),
    ("sandbar-observe", "record", Part::Nothing),
    ("sandbar-observe", "sandbar_observe", Part::Nothing),
    ("sandbar-rig", "rig", Part::Nothing),
    ("sandbar-rig", "resolver", Part::Nothing),
];

/// The slowest tests, which are started first.
const LONGEST_FIRST: &[&str] = &[
    "sandbar-local lifecycle",
    "sandbar-cli cli",
    "sandbar-local egress",
    "sandbar-engine isolation",
    "sandbar-cli clients",
    "sandbar-engine sandbar_engine",
    "sandbar-cli blackbox",
    "sandbar-agent filesystem",
];

/// What of a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    All,
    /// Only these modules.
    Of(&'static [&'static str]),
    Nothing,
}

/// Tests (package and name) that need an outside. As this user each of them makes a rig of its own; as an ordinary user the whole
/// binary is in one that root made, since subordinate ids can't be had inside a user namespace.
const RIG_TESTS: &[(&str, &str)] = &[
    ("sandbar-cli", "clients"),
    ("sandbar-local", "egress"),
    ("sandbar-local", "egress_life"),
    ("sandbar-rig", "rig"),
    ("sandbar-rig", "resolver"),
];

/// A compiled test.
#[derive(Debug)]
pub(crate) struct TestBinary {
    pub(crate) package: String,
    pub(crate) name: String,
    pub(crate) executable: PathBuf,
    pub(crate) folder: PathBuf,
}

/// Executables that tests start.
#[derive(Debug)]
pub(crate) struct Executables {
    pub(crate) helper: PathBuf,
    pub(crate) rig: PathBuf,
}

impl TestBinary {
    /// What of it runs with subordinate ids.
    pub(crate) fn with_subordinate_ids(&self) -> Part {
        let named =
            LIKE_SINGLE.iter().find(|(package, name, _)| (*package, *name) == (&self.package, &self.name));
        named.map_or(Part::All, |(_, _, part)| *part)
    }

    /// Its run as this user.
    fn job(&self, executables: &Executables, scratch: &Path) -> Job {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command.env("TMPDIR", scratch);
        command.env("SANDBAR_HELPER", &executables.helper).env("SANDBAR_RIG_BIN", &executables.rig);
        Job { title: format!("{} {}", self.package, self.name), command }
    }

    /// Whether it is to be run in a rig.
    pub(crate) fn needs_rig(&self) -> bool {
        RIG_TESTS.contains(&(self.package.as_str(), self.name.as_str()))
    }
}

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if !arguments.is_empty() {
        return Err(format!("`test` takes no arguments, got `{}`", arguments.join(" ")));
    }
    scratch::enter()?;
    host::prepare()?;
    checks::run()?;
    // One build of everything, executables as well; then the binaries are run as whoever is to run them.
    let (binaries, executables) = build_tests()?;
    let scratch = Scratch::new()?;
    let stages: Vec<(Mode, Stage)> = if host::is_root() {
        [Mode::Single, Mode::Subordinate]
            .into_iter()
            .map(|mode| Ok((mode, Stage::new(mode, scratch.path())?)))
            .collect::<Result<_, String>>()?
    } else {
        eprintln!("xtask: not root: the tests run as this user only; the root mode is not tested");
        Vec::new()
    };
    let mut jobs: Vec<Job> = binaries.iter().map(|binary| binary.job(&executables, scratch.path())).collect();
    let all = std::env::var_os("SANDBAR_SOAK").is_some();
    for (mode, stage) in &stages {
        jobs.extend(mode.jobs(stage, &binaries, USER_PACKAGES, &executables, all));
    }
    let mut failed = run_jobs(jobs);
    drop(stages);
    // Alone on the machine: it starts some twenty programs at once.
    failed.extend(crate::interop::run_with(&[], &executables.helper, &executables.rig).err());
    failed.extend(doc_tests().err());
    failed.extend(otlp_tests().err());
    if failed.is_empty() { Ok(()) } else { Err(format!("failed:\n  {}", failed.join("\n  "))) }
}

/// All run whatever became of the ones before, so that one run shows all that fails. The long ones come first: none is left alone at the end.
fn run_jobs(mut jobs: Vec<Job>) -> Vec<String> {
    let place = |job: &Job| LONGEST_FIRST.iter().position(|name| job.title.starts_with(name));
    jobs.sort_by_key(|job| place(job).unwrap_or(usize::MAX));
    crew::run(jobs)
}

/// Every test with subordinate ids, also those that `run` leaves out.
pub(crate) fn run_with_subordinate_ids() -> Result<(), String> {
    if !host::is_root() {
        return Err("the ordinary user with subordinate ids is made by root; run this as root".into());
    }
    let (binaries, executables) = build_tests()?;
    let scratch = Scratch::new()?;
    let stage = Stage::new(Mode::Subordinate, scratch.path())?;
    let failed = run_jobs(Mode::Subordinate.jobs(&stage, &binaries, USER_PACKAGES, &executables, true));
    drop(stage);
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

fn doc_tests() -> Result<(), String> {
    crate::run::run(&mut cargo(&["test", "--doc", "--workspace", "--locked", "--no-fail-fast"]))
}

/// The tests of what is only there in a build that sends spans. The last ones: the executable of that build takes the place of the other.
fn otlp_tests() -> Result<(), String> {
    // The whole workspace, so that what is built for the other tests is not built again: features of dependencies are those of all that is built.
    let targets = ["test", "--workspace", "--locked", "--no-fail-fast", "--test", "otlp", "--test", "cli"];
    // The executable of this very build is found beside the tests.
    crate::run::run(cargo(&targets).args(checks::OTLP).args(["--", "otlp"]).env_remove("SANDBAR_HELPER"))
}

/// Builds the `sandbar` executable and answers where it is.
pub(crate) fn build_helper(profile: &str) -> Result<PathBuf, String> {
    build_executable(profile, "sandbar-cli", "sandbar")
}

/// Builds an executable of a package and answers where it is.
pub(crate) fn build_executable(profile: &str, package: &str, name: &str) -> Result<PathBuf, String> {
    build(&["--profile", profile, "-p", package], name)
}

/// Builds an example of a package and answers where it is.
pub(crate) fn build_example(package: &str, name: &str) -> Result<PathBuf, String> {
    build(&["-p", package, "--example", name], name)
}

fn build(what: &[&str], name: &str) -> Result<PathBuf, String> {
    let mut command = cargo(&["build", "--locked", "--message-format=json-render-diagnostics"]);
    let text = output(command.args(what))?;
    artifacts(&text)
        .filter(|artifact| artifact["target"]["name"] == name)
        .find_map(|artifact| artifact["executable"].as_str().map(PathBuf::from))
        .ok_or_else(|| format!("cargo built no executable `{name}`"))
}

/// Compiles every test, and the executables that tests start.
fn build_tests() -> Result<(Vec<TestBinary>, Executables), String> {
    let text = output(&mut cargo(&[
        "test",
        "--workspace",
        "--locked",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]))?;
    let mut binaries = Vec::new();
    let mut programs = BTreeMap::new();
    for artifact in artifacts(&text) {
        let Some(executable) = artifact["executable"].as_str().map(PathBuf::from) else { continue };
        let name = artifact["target"]["name"].as_str().unwrap_or_default().to_owned();
        if artifact["profile"]["test"] != true {
            programs.insert(name, executable);
            continue;
        }
        let manifest = artifact["manifest_path"].as_str().unwrap_or_default();
        let folder = PathBuf::from(manifest).parent().map(PathBuf::from).unwrap_or_default();
        let package = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        binaries.push(TestBinary { package, name, executable, folder });
    }
    if binaries.is_empty() {
        return Err(format!("cargo built no tests in {}", workspace().display()));
    }
    let mut program = |name: &str| programs.remove(name).ok_or(format!("cargo built no executable `{name}`"));
    let executables = Executables { helper: program("sandbar")?, rig: program("sandbar-rig")? };
    Ok((binaries, executables))
}

fn artifacts(text: &str) -> impl Iterator<Item = Value> {
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A filter that matches nothing would leave tests out silently.
    #[test]
    fn every_part_names_what_is_there() {
        for (package, name, part) in LIKE_SINGLE {
            let Part::Of(filters) = part else { continue };
            let folder = workspace().join("crates").join(package).join("tests").join(name);
            let main = std::fs::read_to_string(folder.join("main.rs")).unwrap();
            for filter in *filters {
                let is_there = match filter.strip_suffix("::") {
                    Some(module) => main.contains(&format!("mod {module};")),
                    None => main.contains(filter),
                };
                assert!(is_there, "{package} {name} has no `{filter}`");
            }
        }
    }
}
