//! `cargo xtask test`: all that has to hold before a change lands.

use std::path::PathBuf;

use serde_json::Value;

use crate::modes::Mode;
use crate::run::{cargo, output, workspace};
use crate::{checks, host};

/// Packages whose tests run again as an ordinary user: what they do depends on who does it.
const USER_PACKAGES: &[&str] =
    &["sandbar-engine", "sandbar-agent", "sandbar-local", "sandbar-cli", "sandbar-observe", "sandbar-rig"];

/// Tests (package and name) in which it makes no difference whether an ordinary user has one id or subordinate ones: with them they run only where
/// `SANDBAR_SOAK` asks for the long sizes, so that a run stays well below 40 minutes on two cores. What leads out of a sandbox is made alike in both,
/// and `egress_life` runs in both.
const LIKE_SINGLE: &[(&str, &str)] = &[
    ("sandbar-local", "egress"),
    ("sandbar-cli", "clients"),
    ("sandbar-cli", "sandbar_cli"),
    ("sandbar-agent", "sandbar_agent"),
    ("sandbar-agent", "output"),
    ("sandbar-agent", "filesystem"),
    ("sandbar-agent", "files"),
    ("sandbar-observe", "contract"),
    ("sandbar-observe", "observed"),
    ("sandbar-observe", "record"),
    ("sandbar-observe", "sandbar_observe"),
    ("sandbar-rig", "rig"),
    ("sandbar-rig", "resolver"),
    ("sandbar-rig", "sandbar_rig"),
];

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
    /// Whether it says with subordinate ids what it says with a single one.
    pub(crate) fn is_like_single(&self) -> bool {
        LIKE_SINGLE.contains(&(self.package.as_str(), self.name.as_str()))
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
    host::prepare()?;
    checks::run()?;
    let executables = Executables {
        helper: build_helper("dev")?,
        rig: build_executable("dev", "sandbar-rig", "sandbar-rig")?,
    };
    // One build of everything; then the binaries are run as whoever is to run them.
    let binaries = test_binaries()?;
    // Each mode runs whatever became of the ones before, so that one run shows all that fails.
    let mut failed: Vec<String> = run_cargo_tests(&executables).err().into_iter().collect();
    if host::is_root() {
        for mode in [Mode::Single, Mode::Subordinate] {
            failed.extend(mode.run(&binaries, USER_PACKAGES, &executables).err());
        }
    } else {
        eprintln!("xtask: not root: the tests ran as this user only; the root mode was not tested");
    }
    failed.extend(otlp_tests().err());
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n  ")) }
}

/// The tests of what is only there in a build that sends spans. The last ones: the executable of that build takes the place of the other.
fn otlp_tests() -> Result<(), String> {
    let targets = ["test", "--locked", "--no-fail-fast", "--test", "otlp", "--test", "cli"];
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

fn run_cargo_tests(executables: &Executables) -> Result<(), String> {
    crate::run::run(
        cargo(&["test", "--workspace", "--locked", "--no-fail-fast"])
            .env("SANDBAR_HELPER", &executables.helper)
            .env("SANDBAR_RIG_BIN", &executables.rig),
    )
}

/// Compiles every test and answers the binaries.
pub(crate) fn test_binaries() -> Result<Vec<TestBinary>, String> {
    let text = output(&mut cargo(&[
        "test",
        "--workspace",
        "--locked",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]))?;
    let mut binaries = Vec::new();
    for artifact in artifacts(&text).filter(|artifact| artifact["profile"]["test"] == true) {
        let Some(executable) = artifact["executable"].as_str() else { continue };
        let manifest = artifact["manifest_path"].as_str().unwrap_or_default();
        let folder = PathBuf::from(manifest).parent().map(PathBuf::from).unwrap_or_default();
        let package = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = artifact["target"]["name"].as_str().unwrap_or_default().to_owned();
        binaries.push(TestBinary { package, name, executable: executable.into(), folder });
    }
    if binaries.is_empty() {
        return Err(format!("cargo built no tests in {}", workspace().display()));
    }
    Ok(binaries)
}

fn artifacts(text: &str) -> impl Iterator<Item = Value> {
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact")
}
