use clap::Args;

use sandbar::ProjectId;

use crate::value::{Pair, StateArg, contract};

/// List sandboxes
///
/// With `--json`: an array of records, empty if there are none.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar ls --label team=core --state running
  sandbar ls --json")]
pub(crate) struct LsArgs {
    /// Only with this label; may be given again, and then all must be there
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub(crate) labels: Vec<Pair>,
    /// Only in this state; may be given again, and then one of them will do
    #[arg(long = "state", value_name = "STATE")]
    pub(crate) states: Vec<StateArg>,
    /// Only of this project
    #[arg(long, value_name = "PROJECT", value_parser = contract::<ProjectId>)]
    pub(crate) project: Option<ProjectId>,
}

/// Show all about one sandbox
///
/// Exit code 1 means that it positively does not exist.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  sandbar describe demo --json")]
pub(crate) struct DescribeArgs {
    /// Id, unambiguous beginning of an id, or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}
