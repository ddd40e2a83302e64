use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use sandbar::{GuestPath, UserName};

use crate::value::{EnvArg, EscapeChar, HumanDuration, contract};

/// Run a command in a sandbox
///
/// Output passes unchanged, as it comes; the exit code is the command's own. It is run as it is typed, without a shell. SIGINT, SIGTERM and
/// SIGHUP end the command too, with all it started, unless they were ignored from the start, as under `nohup`; the sandbox lives on. If this
/// process is ended by SIGKILL, the command runs on in the sandbox.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar exec demo -- python3 -V
  sandbar exec demo -i -w /home/user -- tar -x < files.tar
  sandbar exec demo -T -- vim notes.txt
  sandbar exec demo -e TOKEN --timeout 1m -- sh -c 'echo \"$TOKEN\" | wc -c'")]
pub(crate) struct ExecArgs {
    /// Id, unambiguous beginning of an id, or name
    #[arg(value_name = "ID", help_heading = "Arguments", display_order = 1)]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
    #[command(flatten)]
    pub(crate) env: EnvArgs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD", help_heading = "Arguments", display_order = 2)]
    pub(crate) command: Vec<OsString>,
}

/// How a command is run: the same for `run` and `exec`.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Command options")]
pub(crate) struct ProcessArgs {
    /// Who runs it, such as `user` or `root` [default: the template's own user]
    #[arg(short, long, value_name = "USER", value_parser = contract::<UserName>)]
    pub(crate) user: Option<UserName>,
    /// Working folder in the sandbox [default: the user's home]
    #[arg(short = 'w', long = "workdir", value_name = "DIR", value_parser = contract::<GuestPath>)]
    pub(crate) workdir: Option<GuestPath>,
    /// Pass standard input to it; without this it reads end of file
    #[arg(short, long)]
    pub(crate) interactive: bool,
    /// Give it a terminal: this one, raw, until it ends
    ///
    /// Ctrl-C, Ctrl-Z and Ctrl-D go to the command, and so does the size of the window. Standard input has to be a terminal. At the beginning of a
    /// line, `~.` leaves it (what `exec` started runs on, and `attach` goes back to it), `~^Z` suspends this process, `~?` says so, and `~~` is a `~`. TERM,
    /// COLORTERM and LANG are passed on unless `-e` sets them.
    #[arg(short = 'T', long = "tty")]
    pub(crate) tty: bool,
    /// What the keys of `-T` begin with: a character, a control character such as `^]`, or `none` [default: ~]
    #[arg(long, value_name = "CHAR", requires = "tty")]
    pub(crate) escape_char: Option<EscapeChar>,
    /// End it after this long, with exit code 124; such as 500ms, 30s, 1h30m
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<HumanDuration>,
}

/// Environment variables.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Environment options")]
pub(crate) struct EnvArgs {
    /// An environment variable; `-e KEY` alone takes the value from here; may be given again
    #[arg(short, long = "env", value_name = "KEY[=VALUE]")]
    pub(crate) env: Vec<EnvArg>,
    /// A file of environment variables; `-e` overrides it; may be given again
    ///
    /// One `KEY=VALUE` a line. Empty lines and lines that start with `#` are skipped. All after the first `=` is the value, as it stands: no
    /// quotes, no escapes, no expansion.
    #[arg(long = "env-file", value_name = "FILE")]
    pub(crate) env_files: Vec<PathBuf>,
}
