//! `cargo xtask bench`: builds for release, measures, and shows it; `docs/benchmarks.md` is made of it. A time is never a reason to fail: only what
//! did not work is.

mod machine;
mod page;
mod row;

use std::path::Path;
use std::process::{Command, Stdio};

use crate::host;
use crate::modes::{Mode, Stage};
use crate::run::workspace;
use crate::test::{build_executable, build_helper};

use row::Row;

/// Where the page is, from the workspace.
const PAGE: &str = "docs/benchmarks.md";
/// Of these it matters who measures.
const BY_USER: &[&str] = &["create", "run"];

/// These take an outside, so they are measured in a rig.
const IN_RIG: &[&str] = &["egress-connect", "egress-download", "egress-create"];

/// This one uses an official package.
const SDK: &str = "server-sdk";

/// Rows and who measured them.
#[derive(Debug)]
struct Part {
    title: &'static str,
    rows: Vec<Row>,
}

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let (flags, names): (Vec<_>, Vec<_>) =
        arguments.iter().map(String::as_str).partition(|word| word.starts_with("--"));
    if let Some(unknown) = flags.iter().find(|flag| !["--quick", "--write"].contains(flag)) {
        return Err(format!("`bench` has no option `{unknown}`; there are `--quick` and `--write`"));
    }
    if flags.contains(&"--write") && (!names.is_empty() || flags.contains(&"--quick")) {
        return Err("`--write` writes the whole page: it takes no names and no `--quick`".into());
    }
    host::prepare_peers()?;
    let helper = build_helper("release")?;
    let bench = build_executable("release", "sandbar-bench", "sandbar-bench")?;
    let quick = flags.contains(&"--quick").then_some("--quick");
    let title = if host::is_root() { "As root, an id range per sandbox" } else { "As an ordinary user" };
    let mut parts = Vec::new();
    let mut failed = Vec::new();
    let (in_rig, others): (Vec<&str>, Vec<&str>) =
        names.iter().copied().partition(|name| IN_RIG.contains(name));
    if names.is_empty() || !others.is_empty() {
        let mut command = Command::new(&bench);
        command.args(&others).args(quick);
        if names.is_empty() || names.iter().any(|name| SDK.starts_with(name)) {
            give_sdk(&mut command);
        }
        measure(&mut command, &helper, title, &mut parts, &mut failed)?;
    }
    if names.is_empty() || !in_rig.is_empty() {
        let rig = build_executable("release", "sandbar-rig", "sandbar-rig")?;
        let mut command = Command::new(rig);
        command.args(["run", "--"]).arg(&bench).args(&in_rig).args(quick);
        measure(&mut command, &helper, title, &mut parts, &mut failed)?;
    }
    let by_user: Vec<_> =
        BY_USER.iter().filter(|name| names.is_empty() || names.contains(*name)).copied().collect();
    if host::is_root() && !by_user.is_empty() {
        let stage = Stage::new(Mode::Single, &std::env::temp_dir())?;
        let mut command = stage.command(&bench, workspace());
        command.args(by_user).args(quick);
        let title = "As an ordinary user with one id";
        measure(&mut command, &helper, title, &mut parts, &mut failed)?;
    }
    let page = page::render(&parts, &machine::describe());
    println!("{page}");
    failed.extend(parts.iter().flat_map(|part| &part.rows).filter_map(Row::failure));
    if !failed.is_empty() {
        return Err(format!("did not work:\n  {}", failed.join("\n  ")));
    }
    if flags.contains(&"--write") {
        std::fs::write(workspace().join(PAGE), page).map_err(|why| format!("{PAGE}: {why}"))?;
        eprintln!("xtask: wrote {PAGE}");
    }
    Ok(())
}

/// Tells where the newest official package is, or why there is none: a machine without a registry measures the rest.
fn give_sdk(command: &mut Command) {
    match crate::interop::newest_javascript() {
        Ok((node, packages)) => {
            command.env("SANDBAR_BENCH_NODE", node).env("SANDBAR_BENCH_SDK", packages);
        }
        Err(why) => {
            command.env("SANDBAR_BENCH_NO_SDK", format!("the package can't be installed: {why}"));
        }
    }
}

fn measure(
    command: &mut Command,
    helper: &Path,
    title: &'static str,
    parts: &mut Vec<Part>,
    failed: &mut Vec<String>,
) -> Result<(), String> {
    let output = command
        .env("SANDBAR_HELPER", helper)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|why| format!("sandbar-bench could not be started: {why}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rows = text.lines().map(Row::parse).collect::<Result<Vec<_>, _>>()?;
    match parts.iter_mut().find(|part| part.title == title) {
        Some(part) => part.rows.extend(rows),
        None => parts.push(Part { title, rows }),
    }
    if !output.status.success() {
        failed.push(format!("{title}: sandbar-bench ended with {}", output.status));
    }
    Ok(())
}
