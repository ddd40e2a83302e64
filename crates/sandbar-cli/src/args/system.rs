use clap::{Args, Subcommand};

/// Look at what Sandbar keeps on this machine
#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
#[command(after_help = "Examples:\n  sandbar system df")]
pub(crate) struct SystemArgs {
    #[command(subcommand)]
    pub(crate) action: SystemAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SystemAction {
    Df(DfArgs),
}

/// Show what sandboxes, layers, templates, volumes and logs take on disk
///
/// What sandboxes and templates share is under `layers`, once. What could not be measured is `-`, in JSON `null`. `sandbar prune` says what of it nobody needs.
///
/// With `--json`: `{version, parts}`, each of the parts `{name, count, bytes}`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sandbar system df --json")]
pub(crate) struct DfArgs {}

/// Remove what nobody needs any more, or say what that is
///
/// Expired sandboxes, what was left of others, what somebody began to make and did not end, layers that nothing names, remembered build steps, and folders that
/// are kept for the next sandbox. Never a volume, a template, or a sandbox that has time left. Without `--force` nothing is changed.
///
/// With `--json`: `{version, removed, bytes, items, problems}`; each of the items is `{kind, name, bytes, removed, problem}`, kind `expired` `leftover` `trash`
/// `unfinished` `cached-step` `layer` `pool`; problems are what could not be looked at.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar prune
  sandbar prune --force")]
pub(crate) struct PruneArgs {
    /// Do it
    #[arg(short, long, visible_alias = "yes")]
    pub(crate) force: bool,
}
