//! Documents that are made from code. That they are current is a test of the crate that they are made from.

use std::fs;

use crate::run::{cargo, output, workspace};

/// A document, and the package and example that prints it.
const DOCUMENTS: &[(&str, &str, &str)] = &[("docs/doctor.md", "sandbar-local", "conditions")];

pub(crate) fn run() -> Result<(), String> {
    for (document, package, example) in DOCUMENTS {
        let text = output(&mut cargo(&["run", "--quiet", "--locked", "-p", package, "--example", example]))?;
        let path = workspace().join(document);
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        eprintln!("xtask: wrote {document}");
    }
    Ok(())
}
