//! `cargo xtask fuzz`: every fuzz target for a while, on whatever toolchain there is.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::host::on_path;
use crate::run::{cargo, output, workspace};

/// How long each target runs if nothing else is said.
const SECONDS: u32 = 60;
/// An input that takes longer than this is a fault: a parser that stands still, or nearly.
const INPUT_SECONDS: u32 = 10;
/// An input that makes the process use more memory than this is a fault, in MiB: all bounds are far below.
const MEMORY_MIB: u32 = 1024;
/// What the process may reserve, in KiB: an allocation that nothing bounds fails at once, touched or not.
const ADDRESS_SPACE_KIB: u32 = 8 << 20;
/// Longest input, in bytes: more is only slower.
const MAX_BYTES: u32 = 32 << 10;

/// Coverage as libFuzzer wants it, by the means of the stable compiler (`cargo fuzz` gives the same), and assertions. They take the place of
/// the flags in the configuration file: a static program that can't be moved does not go together with a C++ runtime.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";

/// What was asked for.
struct Asked {
    seconds: u32,
    targets: Vec<String>,
}

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let asked = asked(arguments, &targets()?)?;
    run_targets(&asked.targets, asked.seconds)
}

/// Every target, for the long check.
pub(crate) fn run_all(seconds: u32) -> Result<(), String> {
    run_targets(&targets()?, seconds)
}

fn asked(arguments: &[String], known: &[String]) -> Result<Asked, String> {
    let mut asked = Asked { seconds: SECONDS, targets: Vec::new() };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.strip_prefix("--seconds") {
            Some(rest) => {
                let given = rest.strip_prefix('=').or_else(|| arguments.next().map(String::as_str));
                asked.seconds = given
                    .and_then(|text| text.parse().ok())
                    .filter(|number| *number > 0)
                    .ok_or_else(|| {
                        format!(
                            "`--seconds` takes a positive number, such as 60; got `{}`",
                            given.unwrap_or_default()
                        )
                    })?;
            }
            None if known.contains(argument) => asked.targets.push(argument.clone()),
            None => return Err(format!("no fuzz target `{argument}`; there are: {}", known.join(", "))),
        }
    }
    if asked.targets.is_empty() {
        asked.targets = known.to_vec();
    }
    Ok(asked)
}

/// The targets' names. Each has a program, an entry in the manifest, and seeds.
pub(crate) fn targets() -> Result<Vec<String>, String> {
    let fuzz = workspace().join("fuzz");
    let programs: BTreeSet<String> = names(&fuzz.join("fuzz_targets"))?
        .iter()
        .filter_map(|n| n.strip_suffix(".rs").map(str::to_owned))
        .collect();
    let manifest =
        fs::read_to_string(fuzz.join("Cargo.toml")).map_err(|e| format!("fuzz/Cargo.toml: {e}"))?;
    let entries: BTreeSet<String> = manifest
        .lines()
        .filter_map(|line| {
            line.strip_prefix("path = \"fuzz_targets/")?.strip_suffix(".rs\"").map(str::to_owned)
        })
        .collect();
    let seeds: BTreeSet<String> = names(&fuzz.join("seeds"))?.into_iter().collect();
    for (what, found) in [("entry in fuzz/Cargo.toml", &entries), ("folder in fuzz/seeds", &seeds)] {
        if let Some(odd) = programs.symmetric_difference(found).next() {
            return Err(format!("fuzz target `{odd}` has a program and no {what}, or the other way round"));
        }
    }
    Ok(programs.into_iter().collect())
}

fn names(folder: &Path) -> Result<Vec<String>, String> {
    let fail = |e: std::io::Error| format!("{}: {e}", folder.display());
    let entries = fs::read_dir(folder).map_err(fail)?;
    entries.map(|entry| Ok(entry.map_err(fail)?.file_name().to_string_lossy().into_owned())).collect()
}

fn run_targets(targets: &[String], seconds: u32) -> Result<(), String> {
    if !on_path("c++") {
        return Err(
            "no `c++` on PATH, which builds libFuzzer: install one (Debian: apt-get install g++)".into()
        );
    }
    let programs = build(targets)?;
    let mut failed = Vec::new();
    for target in targets {
        match fuzz(target, &programs.join(target), seconds) {
            Ok(line) => println!("{line}"),
            Err(why) => {
                println!("{target:22} FAILED: {why}");
                failed.push(target.as_str());
            }
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("fuzz targets that found something: {}", failed.join(", ")))
    }
}

/// Builds the programs and answers their folder.
fn build(targets: &[String]) -> Result<PathBuf, String> {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let triple = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .ok_or("`rustc -vV` does not name its host")?
        .to_owned();
    // Beside the other builds, which have other flags.
    let folder = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => PathBuf::from(folder).join("fuzz"),
        None => workspace().join("fuzz/target"),
    };
    let mut command =
        cargo(&["build", "--release", "--quiet", "--manifest-path", "fuzz/Cargo.toml", "--target"]);
    // Named, so that build scripts and procedural macros are built without the flags.
    command.arg(&triple).env("RUSTFLAGS", FLAGS).env("CARGO_TARGET_DIR", &folder);
    for target in targets {
        command.args(["--bin", target]);
    }
    crate::run::run(&mut command)?;
    Ok(folder.join(triple).join("release"))
}

/// Runs one target from its seeds and from what earlier runs found, and answers what it did.
fn fuzz(target: &str, program: &Path, seconds: u32) -> Result<String, String> {
    let fuzz = workspace().join("fuzz");
    let (corpus, artifacts) = (fuzz.join("corpus").join(target), fuzz.join("artifacts").join(target));
    let scratch = scratch_place().join(format!("sbfuzz-{}", std::process::id()));
    for folder in [&corpus, &artifacts, &scratch] {
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let log = artifacts.join("log");
    let script = format!("ulimit -v {ADDRESS_SPACE_KIB}; exec \"$0\" \"$@\"");
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .arg(program)
        .args([&corpus, &fuzz.join("seeds").join(target)])
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={INPUT_SECONDS}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
        .arg(format!("-max_len={MAX_BYTES}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args(["-print_final_stats=1", "-close_fd_mask=1"])
        .env("TMPDIR", &scratch)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{} could not be started: {e}", program.display()))?;
    let mut lines = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        lines.extend(BufReader::new(stderr).split(b'\n').map_while(Result::ok));
    }
    // It ends by itself: `-max_total_time` bounds the whole, `-timeout` each input.
    let status = child.wait().map_err(|e| format!("{target}: {e}"))?;
    let _ = fs::remove_dir_all(&scratch);
    let text: Vec<String> = lines.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    fs::write(&log, text.join("\n")).map_err(|e| format!("{}: {e}", log.display()))?;
    if !status.success() {
        let why = text
            .iter()
            .find(|line| {
                line.contains("panicked at")
                    || line.contains("ERROR: libFuzzer")
                    || line.contains("memory allocation")
            })
            .map_or("", String::as_str);
        return Err(format!("it ended with {status}: {why} (see {})", log.display()));
    }
    let stat = |name: &str| -> u64 {
        let value =
            text.iter().find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name)?.strip_prefix(':'));
        value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    let (runs, rate) = (stat("number_of_executed_units"), stat("average_exec_per_sec"));
    if runs == 0 {
        return Err(format!("it ran nothing (see {})", log.display()));
    }
    Ok(format!(
        "{target:22} {runs:>10} runs {rate:>8} a second {:>6} new {:>5} MiB at most",
        stat("new_units_added"),
        stat("peak_rss_mb")
    ))
}

/// Where trees are made and removed: in memory if that can be, which is a hundred times faster.
fn scratch_place() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let writable =
        Command::new("test").args(["-w", "/dev/shm"]).status().is_ok_and(|status| status.success());
    if writable { memory.to_owned() } else { std::env::temp_dir() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_whole() {
        assert!(targets().unwrap().len() > 20);
    }

    #[test]
    fn arguments_are_seconds_and_targets() {
        let known = ["frames".to_owned(), "unpack".to_owned()];
        let of = |words: &[&str]| asked(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>(), &known);
        let all = of(&[]).unwrap();
        assert_eq!((all.seconds, all.targets.len()), (SECONDS, 2));
        let one = of(&["--seconds", "5", "unpack"]).unwrap();
        assert_eq!((one.seconds, one.targets), (5, vec!["unpack".to_owned()]));
        assert_eq!(of(&["--seconds=7"]).unwrap().seconds, 7);
        for (words, part) in [
            (&["nonsense"][..], "no fuzz target `nonsense`; there are: frames, unpack"),
            (&["--seconds"], "positive number"),
            (&["--seconds", "0"], "got `0`"),
            (&["--seconds=x"], "got `x`"),
        ] {
            assert!(of(words).err().unwrap().contains(part), "{words:?}");
        }
    }
}
