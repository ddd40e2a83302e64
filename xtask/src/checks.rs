//! The rules of the house that a machine can check.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::run::{cargo, output, workspace};

/// What each crate of ours may depend on, of ours (the design's table).
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("sandbar-core", &[]),
    ("sandbar-contract", &["sandbar-core"]),
    ("sandbar-wire", &["sandbar-core"]),
    ("sandbar-engine", &[]),
    ("sandbar-agent", &["sandbar-archive", "sandbar-wire", "sandbar-engine"]),
    ("sandbar-archive", &[]),
    ("sandbar-egress", &["sandbar-core"]),
    ("sandbar-http", &["sandbar-core"]),
    ("sandbar-observe", &["sandbar-core"]),
    ("sandbar-guest", &["sandbar-archive", "sandbar-core", "sandbar-wire"]),
    (
        "sandbar-local",
        &[
            "sandbar-archive",
            "sandbar-core",
            "sandbar-wire",
            "sandbar-engine",
            "sandbar-guest",
            "sandbar-observe",
            "sandbar-egress",
        ],
    ),
    ("sandbar-e2b", &["sandbar-core", "sandbar-guest", "sandbar-http", "sandbar-wire"]),
    ("sandbar-server", &["sandbar-core", "sandbar-wire"]),
    ("sandbar-replay", &[]),
    ("sandbar-rig", &[]),
    ("sandbar", &["sandbar-core", "sandbar-e2b", "sandbar-local", "sandbar-observe"]),
    ("sandbar-cli", &["sandbar", "sandbar-agent", "sandbar-archive", "sandbar-local", "sandbar-server"]),
    ("sandbar-bench", &["sandbar", "sandbar-rig", "sandbar-wire"]),
    ("xtask", &[]),
];

/// Vendor words that the contract must not know.
const VENDOR_WORDS: &[&str] = &["e2b", "envd", "firecracker", "flaps", "docker"];

/// The only crate that may hold `unsafe`.
const UNSAFE_CRATE: &str = "sandbar-engine";

/// Longest source file in lines, unless its module doc says why.
const MAX_LINES: usize = 600;

/// What there is more of in a build that sends spans.
pub(crate) const OTLP: &[&str] = &["--features", "sandbar-observe/otlp,sandbar-cli/otlp"];

/// Packages that are linted again with it: those that know it. The others are here for the features that they ask of dependencies: with the same
/// ones as in the whole workspace, what was looked at there is not looked at again.
const OTLP_PACKAGES: &[&str] =
    &["-p", "sandbar-observe", "-p", "sandbar-cli", "-p", "sandbar-core", "-p", "sandbar-egress"];

fn house_rules() -> Result<(), String> {
    let metadata: Value =
        serde_json::from_str(&output(&mut cargo(&["metadata", "--format-version", "1", "--locked"]))?)
            .map_err(|e| format!("cargo metadata printed what is not JSON: {e}"))?;
    let mut complaints = dependency_directions(&metadata);
    complaints.extend(licenses(&metadata)?);
    complaints.extend(tests_that_never_run(&metadata)?);
    complaints.extend(sources()?);
    complaints.extend(crate::fuzz::targets().err());
    let documents = output(&mut git(&["ls-files", "*.md"]))?;
    complaints.extend(crate::links::dead(workspace(), &documents.lines().collect::<Vec<_>>())?);
    if complaints.is_empty() {
        eprintln!("xtask: rules of the house: kept");
        return Ok(());
    }
    Err(format!("rules of the house:\n  {}", complaints.join("\n  ")))
}

pub(crate) fn run() -> Result<(), String> {
    house_rules()?;
    crate::run::run(&mut cargo(&["fmt", "--all", "--check"]))?;
    crate::run::run(&mut cargo(&["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]))?;
    crate::run::run(&mut cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ]))?;
    crate::run::run(
        cargo(&["clippy", "--all-targets", "--locked", "--quiet"])
            .args(OTLP_PACKAGES)
            .args(OTLP)
            .args(["--", "-D", "warnings"]),
    )
}

fn dependency_directions(metadata: &Value) -> Vec<String> {
    let ours: BTreeSet<&str> =
        packages(metadata).filter(|p| p["source"].is_null()).filter_map(|p| p["name"].as_str()).collect();
    let allowed: BTreeMap<_, _> = MAY_DEPEND_ON.iter().copied().collect();
    let mut complaints = Vec::new();
    for package in packages(metadata).filter(|p| p["source"].is_null()) {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(may) = allowed.get(name) else {
            complaints.push(format!("crate `{name}` has no row in xtask's MAY_DEPEND_ON"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        // Tests may reach across (the conformance kit runs everywhere); what ships may not.
        for dependency in dependencies.filter(|d| d["kind"].as_str() != Some("dev")) {
            let on = dependency["name"].as_str().unwrap_or_default();
            if ours.contains(on) && !may.contains(&on) {
                complaints.push(format!("`{name}` depends on `{on}`, which its row does not allow"));
            }
        }
    }
    complaints
}

/// Every dependency's license must be on the list in `deny.toml`, which `cargo deny` reads too.
fn licenses(metadata: &Value) -> Result<Vec<String>, String> {
    let deny = read(&workspace().join("deny.toml"))?;
    let list = deny.split("allow = [").nth(1).and_then(|rest| rest.split(']').next()).unwrap_or_default();
    let allowed: BTreeSet<&str> = list.split('"').skip(1).step_by(2).collect();
    if allowed.is_empty() {
        return Err("deny.toml has no list of allowed licenses".into());
    }
    let mut complaints = Vec::new();
    for package in packages(metadata) {
        let license = package["license"].as_str().unwrap_or_default().replace('/', " OR ");
        // Good enough for the expressions in use: an alternative counts if each of its parts is allowed.
        let good = license.trim_matches(['(', ')']).split(" OR ").any(|alternative| {
            alternative.split(" AND ").all(|part| {
                part.split_whitespace().next().is_some_and(|id| allowed.contains(id.trim_matches(['(', ')'])))
            })
        });
        if !good {
            complaints.push(format!(
                "`{}` has license `{license}`, which deny.toml does not allow",
                package["name"]
            ));
        }
    }
    Ok(complaints)
}

/// A target that says that it has no unit tests has none.
fn tests_that_never_run(metadata: &Value) -> Result<Vec<String>, String> {
    let mut complaints = Vec::new();
    for package in packages(metadata).filter(|p| p["source"].is_null()) {
        let targets = package["targets"].as_array().into_iter().flatten();
        for target in targets.filter(|target| target["test"] == false) {
            let is_ours = ["lib", "bin"].iter().any(|kind| target["kind"][0] == *kind);
            let root = Path::new(target["src_path"].as_str().unwrap_or_default());
            let Some(folder) = root.parent().filter(|_| is_ours) else { continue };
            // What lies beside a library's root is the library's, also where a program's root lies there.
            let is_library = target["kind"][0] == "lib" || !folder.join("lib.rs").exists();
            let files = if is_library { "*.rs" } else { root.to_str().unwrap_or_default() };
            let mut list = git(&["ls-files", files]);
            for file in output(list.current_dir(folder))?.lines() {
                let text = read(&folder.join(file))?;
                if text.lines().any(|line| line.trim_start().starts_with("#[cfg(test)]")) {
                    complaints.push(format!(
                        "{}/{file} has tests that never run: its target has `test = false`",
                        folder.display()
                    ));
                }
            }
        }
    }
    Ok(complaints)
}

fn sources() -> Result<Vec<String>, String> {
    let mut complaints = Vec::new();
    for file in output(&mut git(&["ls-files", "*.rs"]))?.lines() {
        let Ok(text) = fs::read_to_string(workspace().join(file)) else { continue };
        if text.lines().count() > MAX_LINES && !text.contains("longer than the house rule") {
            complaints.push(format!("{file} has more than {MAX_LINES} lines"));
        }
        let crate_name = file.split('/').nth(1).unwrap_or_default();
        let has_unsafe = text.lines().any(|line| {
            let code = line.split("//").next().unwrap_or_default();
            ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"].iter().any(|word| code.contains(word))
        });
        if has_unsafe && crate_name != UNSAFE_CRATE && !file.starts_with("xtask/") {
            complaints.push(format!("{file} holds `unsafe`; only {UNSAFE_CRATE} may"));
        }
        if crate_name == "sandbar-core" {
            let lower = text.to_lowercase();
            for word in VENDOR_WORDS.iter().filter(|word| lower.contains(**word)) {
                complaints.push(format!("{file} knows the vendor word `{word}`"));
            }
        }
    }
    for manifest in output(&mut git(&["ls-files", "crates/*/Cargo.toml"]))?.lines() {
        let text = read(&workspace().join(manifest))?;
        let own_lints = manifest.contains(UNSAFE_CRATE) && text.contains("unsafe_code = \"deny\"");
        if !own_lints && !text.contains("[lints]\nworkspace = true") {
            complaints.push(format!("{manifest} does not take the workspace's lints"));
        }
    }
    Ok(complaints)
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().into_iter().flatten()
}

fn git(arguments: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new("git");
    command.current_dir(workspace()).args(arguments);
    command
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}
