//! Development tasks of this repository. `cargo xtask help` lists them.

mod bench;
mod checks;
mod crew;
mod fuzz;
mod generate;
mod host;
mod interop;
mod links;
mod live;
mod modes;
mod run;
mod scratch;
mod soak;
mod test;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask TASK

  test      everything: format, lints, rules of the house, all tests as this user and, where this user is root,
            again as an ordinary user in both id modes (installs what the tests need, on Debian as root)
  check     only format, lints and rules of the house
  bench     release builds measured beside their peers [NAME...] [--quick] [--write: docs/benchmarks.md]
  gen       writes the documents that are made from code
  fuzz      the fuzz targets [--seconds N] [TARGET...], 60 s each; needs a C++ compiler, and no nightly toolchain
  soak      the long sizes of the long checks [NAME...]; prints what it measured
  interop   the official packages of E2B against this build [--full] [--only CASE] [--column RELEASE] [--write: docs/compatibility.md]
  live      the conformance kit against a real cloud (`e2b`), where there is a key; costs money [PREFIX...]
  help      this
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.first().map(String::as_str) {
        Some("test") => test::run(&arguments[1..]),
        Some("check") => checks::run(),
        Some("bench") => bench::run(&arguments[1..]),
        Some("gen") => generate::run(),
        Some("fuzz") => fuzz::run(&arguments[1..]),
        Some("interop") => interop::run(&arguments[1..]),
        Some("live") => live::run(&arguments[1..]),
        Some("soak") => soak::run(&arguments[1..]),
        Some("help" | "--help" | "-h") => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        other => {
            eprint!("xtask: unknown task `{}`\n\n{HELP}", other.unwrap_or_default());
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}
