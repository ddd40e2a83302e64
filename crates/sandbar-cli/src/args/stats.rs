use clap::Args;

use crate::value::HumanDuration;

/// Show what sandboxes use: processor, memory, disk, processes
///
/// Without ID: every running sandbox. What can't be measured is `-`, in JSON `null`. CPU counts since the sandbox started; DISK is what it wrote.
///
/// With `--json`: `{version, sandboxes}`; with `--watch` one such object a line.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar stats
  sandbar stats demo --watch
  sandbar stats demo --json")]
pub(crate) struct StatsArgs {
    /// Id, unambiguous beginning of an id, or name
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Measure again and again, with the share of a core that was used in between, until it is ended by Ctrl-C
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Time between two measurements [default: 2s]
    #[arg(long, value_name = "DURATION", requires = "watch")]
    pub(crate) interval: Option<HumanDuration>,
}
