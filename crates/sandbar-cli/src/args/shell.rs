use std::ffi::OsString;

use clap::Args;
use sandbar::{GuestPath, UserName};

use crate::args::EnvArgs;
use crate::value::{EscapeChar, contract};

/// Open a shell in a sandbox, on this terminal
///
/// A login shell: `bash` if the sandbox has it, else `sh`; or the command that is given. Its exit code is this one's. Ctrl-C, Ctrl-Z and Ctrl-D go to
/// it, and so does the size of the window. TERM, COLORTERM and LANG are passed on unless `-e` sets them.
///
/// At the beginning of a line, `~.` leaves it, whatever state the sandbox is in: it runs on, and `attach` goes back to it. `~^Z` suspends this
/// process, `~?` says so, and `~~` is a `~`. If this process is asked to end, or its terminal goes away, so does the shell. Exit code 129: left by `~.`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar shell demo
  sandbar shell demo -u root -w /etc
  sandbar shell demo -- python3")]
pub(crate) struct ShellArgs {
    /// Id, unambiguous beginning of an id, or name
    #[arg(value_name = "ID", help_heading = "Arguments", display_order = 1)]
    pub(crate) id: String,
    /// Who runs it, such as `user` or `root` [default: the template's own user]
    #[arg(short, long, value_name = "USER", value_parser = contract::<UserName>)]
    pub(crate) user: Option<UserName>,
    /// Working folder in the sandbox [default: the user's home]
    #[arg(short = 'w', long = "workdir", value_name = "DIR", value_parser = contract::<GuestPath>)]
    pub(crate) workdir: Option<GuestPath>,
    /// What this program's own keys begin with: a character, a control character such as `^]`, or `none` [default: ~]
    #[arg(long, value_name = "CHAR")]
    pub(crate) escape_char: Option<EscapeChar>,
    #[command(flatten)]
    pub(crate) env: EnvArgs,
    /// A command instead of the shell, and its arguments
    #[arg(last = true, value_name = "CMD", help_heading = "Arguments", display_order = 2)]
    pub(crate) command: Vec<OsString>,
}
