use clap::Args;

use crate::args::LimitArgs;

/// Show or change the limits of a running sandbox
///
/// Without an option: show them. A limit that can't be changed here is an error, and then none is changed; so is one below what is in use.
///
/// With `--json`: `{id, limits}`, the limits as `describe` has them.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar resources demo
  sandbar resources demo --memory 1G --cpus 2
  sandbar resources demo --pids 500 --json")]
pub(crate) struct ResourcesArgs {
    /// Id, unambiguous beginning of an id, or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    /// Fail unless what is changed is enforced and not merely watched
    #[arg(long)]
    pub(crate) require_enforced_limits: bool,
}
