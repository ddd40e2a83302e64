use clap::Args;

/// Show what sandboxes that ended had used
///
/// Without ID: all that are known, oldest first; the oldest are forgotten in time. What was not measured is `-`, in JSON `null`. DISK is what was
/// counted last, if it was counted. Exit code 1 means that no sandbox of that id or name is known to have ended.
///
/// With `--json`: `{version, sandboxes, unreadable}`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar usage
  sandbar usage demo --json")]
pub(crate) struct UsageArgs {
    /// Id or name that it had
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
}
