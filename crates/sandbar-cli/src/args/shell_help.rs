use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Print a script that completes commands and options in a shell
///
/// Where it goes: bash `~/.local/share/bash-completion/completions/sandbar`, zsh `_sandbar` in a folder of `$fpath`, fish
/// `~/.config/fish/completions/sandbar.fish`. With `--json`: `{version, shell, script}`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar completions bash > ~/.local/share/bash-completion/completions/sandbar
  source <(sandbar completions zsh)")]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// Shells for which there are completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Print a manual page, or write all of them to a folder
///
/// Without COMMAND: the page of `sandbar` itself. With `--json`: `{version, pages}`, each of the pages with `name` and `content`, or with `path`
/// where it was written.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar man run | man -l -
  sandbar man egress log
  sandbar man --to ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The page of this command, or of the command of a command
    #[arg(value_name = "COMMAND", conflicts_with = "to")]
    pub(crate) command: Vec<String>,
    /// Write every page to this folder, which has to exist; pages that are there are replaced
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
}
