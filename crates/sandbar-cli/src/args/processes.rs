use std::num::NonZeroU32;

use clap::Args;

use crate::value::{EscapeChar, SignalArg};

/// List the processes in a sandbox
///
/// All of them, whoever started them; those that `run`, `exec` and `shell` started are marked, and only those can be attached to. What Sandbar itself keeps
/// inside is left out.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar ps demo
  sandbar ps demo --started --json")]
pub(crate) struct PsArgs {
    /// Id, unambiguous beginning of an id, or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Only those that `run`, `exec` and `shell` started
    #[arg(long)]
    pub(crate) started: bool,
}

/// Send a signal to processes in a sandbox
///
/// To each with all that it started, unless `--alone`; `ps` shows the numbers. Exit code 1 means that one positively does not exist; the others get it all
/// the same. Of what has a terminal, signals other than TERM and KILL go to what Ctrl-C would reach.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar kill demo 12
  sandbar kill demo 12 17 --signal KILL
  sandbar kill demo 12 --alone --signal HUP")]
pub(crate) struct KillArgs {
    /// Id, unambiguous beginning of an id, or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Processes, by their numbers in the sandbox
    #[arg(required = true, value_name = "PID")]
    pub(crate) pids: Vec<NonZeroU32>,
    /// Which signal, by name or number [default: TERM]
    #[arg(short, long, value_name = "SIGNAL")]
    pub(crate) signal: Option<SignalArg>,
    /// Only to the process itself
    #[arg(long)]
    pub(crate) alone: bool,
}

/// Go back to a running process in a sandbox
///
/// Shows its output from now on, and ends with its exit code. A process with a terminal gets this one, as with `shell`. One whose standard input is open
/// gets what is typed here; from anything but a terminal only with `-i`, because its end would be the end of the process' input. Any number may be attached
/// at once.
///
/// The process runs on when this is left: by `~.` at the beginning of a line if it has a terminal, else by Ctrl-C; exit code 129 and 130.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar attach demo 12
  sandbar attach demo 12 --no-stdin | tee log")]
pub(crate) struct AttachArgs {
    /// Id, unambiguous beginning of an id, or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Process, by its number in the sandbox
    #[arg(value_name = "PID")]
    pub(crate) pid: NonZeroU32,
    /// Pass standard input to it whatever it is, and its end; an error if the process keeps none open
    #[arg(short, long, conflicts_with = "no_stdin")]
    pub(crate) interactive: bool,
    /// Only look on
    #[arg(long)]
    pub(crate) no_stdin: bool,
    /// What this program's own keys begin with, if the process has a terminal: a character, a control character such as `^]`, or `none` [default: ~]
    #[arg(long, value_name = "CHAR")]
    pub(crate) escape_char: Option<EscapeChar>,
}
