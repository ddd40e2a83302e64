use std::process::{Command, Stdio};

/// Runs a command with its output on ours and fails if it does.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let shown = show(command);
    eprintln!("+ {shown}");
    let status = command.status().map_err(|e| format!("`{shown}` could not be started: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` ended with {status}")) }
}

/// Runs a command and answers its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let shown = show(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("`{shown}` could not be started: {e}"))?;
    if !output.status.success() {
        return Err(format!("`{shown}` ended with {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|e| format!("`{shown}` printed what is not text: {e}"))
}

/// A `cargo` command in the workspace, with the cargo that runs us.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace()).args(arguments);
    command
}

/// The workspace's folder.
pub(crate) fn workspace() -> &'static std::path::Path {
    std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
