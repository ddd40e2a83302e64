//! `cargo xtask interop`: the official packages of E2B, unmodified, against a `sandbar serve` of this build. The cases are in `interop/`.

mod column;
mod deviations;
mod document;
mod packages;
mod releases;
mod server;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use column::{Column, Kind, Outcome, Verdict};
use document::Document;

use crate::run::{run as run_command, workspace};
use crate::test::{build_executable, build_helper};

/// Programs that run at once: one that waits lets another go on.
const COLUMNS_AT_ONCE: usize = 4;
/// Says to the inner run that it is in a rig: what there is to reach, as JSON.
const RIG: &str = "INTEROP_RIG";
/// The executable under test, for the inner run.
const HELPER: &str = "SANDBAR_HELPER";

/// What to run.
#[derive(Debug, Default)]
struct Options {
    /// Every release in full; else the newest and the oldest, and of the others what shows that they work at all.
    full: bool,
    /// Writes what came out into the document.
    write: bool,
    /// Only columns and cases whose name has this.
    only: Option<String>,
    /// Only columns whose name has this.
    column: Option<String>,
    /// In the rig that the outer run made.
    inside: bool,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--full" => options.full = true,
                "--write" => options.write = true,
                "--inside" => options.inside = true,
                "--only" => {
                    options.only = Some(rest.next().ok_or("`--only` needs a part of a case's name")?.clone());
                }
                "--column" => {
                    options.column =
                        Some(rest.next().ok_or("`--column` needs a part of a column's name")?.clone());
                }
                other => return Err(format!("`interop` does not know `{other}`; see `cargo xtask help`")),
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let options = Options::parse(arguments)?;
    if options.inside {
        let helper = std::env::var_os(HELPER).ok_or_else(|| format!("`{HELPER}` is not set"))?;
        return run_columns(&options, Path::new(&helper));
    }
    let (helper, rig) = (build_helper("dev")?, build_executable("dev", "sandbar-rig", "sandbar-rig")?);
    run_with(arguments, &helper, &rig)
}

/// The same with executables that are built. What is outside is the rig's where one can be made: so nothing depends on the world.
pub(crate) fn run_with(arguments: &[String], helper: &Path, rig: &Path) -> Result<(), String> {
    let options = Options::parse(arguments)?;
    let columns = columns(&options)?;
    packages::install(&columns)?;
    if !crate::host::is_root() {
        eprintln!("xtask: not root: cases that need an outside are skipped");
        return run_columns(&options, helper);
    }
    let this = std::env::current_exe().map_err(|e| format!("this executable has no path: {e}"))?;
    let script = format!("{RIG}=$(\"$0\" hosts) && export {RIG} && exec \"$@\"");
    let mut command = Command::new(rig);
    command.args(["run", "--", "sh", "-euc", &script]).arg(rig).arg(this).args(["interop", "--inside"]);
    run_command(command.args(arguments).env(HELPER, helper))
}

/// Installs the newest package for JavaScript, and answers the Node.js to run it and the folder that has it.
pub(crate) fn newest_javascript() -> Result<(PathBuf, PathBuf), String> {
    let newest = releases::read()?.into_iter().find(|column| column.kind == Kind::Js);
    let newest = newest.ok_or("releases.json has no package for JavaScript")?;
    packages::install(std::slice::from_ref(&newest))?;
    Ok((packages::node(), packages::folder(&newest)))
}

fn columns(options: &Options) -> Result<Vec<Column>, String> {
    let mut columns = releases::read()?;
    if let Some(part) = &options.column {
        columns.retain(|column| column.name().contains(part.as_str()));
        if columns.is_empty() {
            return Err(format!("no column has `{part}` in its name"));
        }
    }
    for column in &mut columns {
        column.is_full |= options.full;
    }
    Ok(columns)
}

fn run_columns(options: &Options, helper: &Path) -> Result<(), String> {
    let columns = columns(options)?;
    let needs_interpreter = columns.iter().any(|column| column.kind.is_interpreter());
    let interpreter = needs_interpreter.then(packages::interpreter);
    let server = server::Servers::start(helper, interpreter.as_deref())?;
    // The long ones first.
    let mut order: Vec<usize> = (0..columns.len()).collect();
    order.sort_by_key(|&index| !columns[index].is_full);
    let queue = Mutex::new(VecDeque::from(order));
    let done = Mutex::new(Vec::new());
    let next = || queue.lock().ok().and_then(|mut queue| queue.pop_front());
    thread::scope(|scope| {
        for _ in 0..COLUMNS_AT_ONCE {
            scope.spawn(|| {
                while let Some(index) = next() {
                    let outcomes = columns[index].run(&server, options.only.as_deref());
                    if let Ok(mut done) = done.lock() {
                        done.push((index, outcomes));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().map_err(|e| e.to_string())?;
    done.sort_by_key(|(index, _)| *index);
    let mut complaints: Vec<String> = server.stop().err().into_iter().collect();
    let deviations = deviations::read()?;
    let mut document = Document::read()?;
    let is_whole = options.only.is_none();
    let (mut ran, mut passed) = (0, 0);
    for (index, outcomes) in done {
        let column = &columns[index];
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(why) => {
                complaints.push(format!("{}: {why}", column.name()));
                continue;
            }
        };
        ran += outcomes.len();
        passed += outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Passed).count();
        complaints.extend(judge(column, &outcomes, &deviations));
        document.take(column, &outcomes, &deviations, is_whole && column.is_full);
    }
    eprintln!("xtask: interop: {ran} cases in {} columns, {passed} passed", columns.len());
    if options.write {
        document.keep_only(&releases::read()?);
        document.write(&deviations)?;
    } else {
        complaints.extend(document.differences());
        if is_whole && complaints.is_empty() {
            complaints.extend(document.is_as_rendered(&deviations).err());
        }
    }
    if complaints.is_empty() { Ok(()) } else { Err(format!("interop:\n  {}", complaints.join("\n  "))) }
}

/// What came out otherwise than it should.
fn judge(column: &Column, outcomes: &[Outcome], deviations: &deviations::Deviations) -> Vec<String> {
    let mut complaints = Vec::new();
    for outcome in outcomes {
        let known = deviations.of(column, &outcome.case);
        let name = format!("{} in {}", outcome.case, column.name());
        match (outcome.verdict, known) {
            (Verdict::Failed, None) => complaints.push(format!("{name}: {}", outcome.why)),
            (Verdict::Passed, Some(_)) => {
                complaints
                    .push(format!("{name} passes, though interop/deviations.json says that it does not"));
            }
            (Verdict::Skipped, _) => eprintln!("xtask: {name}: skipped: {}", outcome.why),
            _ => {}
        }
    }
    complaints
}

/// The folder of the scripts.
fn scripts() -> PathBuf {
    workspace().join("interop")
}
