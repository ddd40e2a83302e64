//! Documents that are made from code. That they are current is a test of the crate that they are made from.

use std::fs;
use std::process::Command;

use crate::run::{output, workspace};
use crate::test::{build_example, build_executable, build_helper};

/// A document, and the package and example that prints it.
const DOCUMENTS: &[(&str, &str, &str)] = &[
    ("docs/doctor.md", "sandbar-local", "conditions"),
    ("docs/e2b-checklist.md", "sandbar-e2b", "checklist"),
];

/// The same, of what the example observes: it makes sandboxes, in a rig.
const OBSERVED: &[(&str, &str, &str)] = &[("docs/egress-scorecard.md", "sandbar-local", "scorecard")];

pub(crate) fn run() -> Result<(), String> {
    for (document, package, example) in DOCUMENTS {
        let example = build_example(package, example)?;
        write(document, &output(&mut Command::new(example))?)?;
    }
    let (helper, rig) = (build_helper("dev")?, build_executable("dev", "sandbar-rig", "sandbar-rig")?);
    for (document, package, example) in OBSERVED {
        let example = build_example(package, example)?;
        let mut command = Command::new(&rig);
        command.args(["run", "--"]).arg(example).env("SANDBAR_HELPER", &helper);
        write(document, &output(&mut command)?)?;
    }
    Ok(())
}

fn write(document: &str, text: &str) -> Result<(), String> {
    let path = workspace().join(document);
    fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    eprintln!("xtask: wrote {document}");
    Ok(())
}
