use clap::CommandFactory;
use serde_json::json;

use crate::args::{Cli, CompletionsArgs, Shell};
use crate::exit::ExitStatus;
use crate::failure::Result;
use crate::output::{Printer, print_bytes, print_json};

/// Version of the JSON form.
const FORM: u32 = 1;

pub(crate) fn completions(args: &CompletionsArgs, printer: Printer) -> Result<ExitStatus> {
    let (word, shell) = match args.shell {
        Shell::Bash => ("bash", clap_complete::Shell::Bash),
        Shell::Zsh => ("zsh", clap_complete::Shell::Zsh),
        Shell::Fish => ("fish", clap_complete::Shell::Fish),
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "sandbar", &mut script);
    if printer.json() {
        let script = String::from_utf8_lossy(&script);
        print_json(&json!({"version": FORM, "shell": word, "script": script}))?;
    } else {
        print_bytes(&script)?;
    }
    Ok(ExitStatus::Done)
}
