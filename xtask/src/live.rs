//! The conformance kit against a real cloud, which costs money: only where somebody gave a key, and never part of another task.

use std::process::Command;

use crate::run;
use crate::test::build_example;

/// A cloud: its word, the package and example that runs the kit, and the variable without which there is nothing to run.
const CLOUDS: &[(&str, &str, &str, &str)] = &[("e2b", "sandbar-e2b", "live", "E2B_API_KEY")];

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let names: Vec<_> = CLOUDS.iter().map(|(name, ..)| *name).collect();
    let found = arguments.first().and_then(|asked| CLOUDS.iter().find(|(name, ..)| name == asked));
    let Some((name, package, example, key)) = found else {
        return Err(format!("`live` takes the name of a cloud first: {}", names.join(", ")));
    };
    if std::env::var_os(key).is_none_or(|value| value.is_empty()) {
        eprintln!("xtask: live {name}: skipped, since there is no key in `{key}`");
        return Ok(());
    }
    let example = build_example(package, example)?;
    run::run(Command::new(example).args(&arguments[1..]))
}
