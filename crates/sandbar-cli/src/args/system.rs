use clap::{Args, Subcommand};

use crate::value::Size;

/// Look at what Sandbar keeps on this machine
#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
#[command(after_help = "Examples:\n  sandbar system df\n  sandbar system init-store --size 20G")]
pub(crate) struct SystemArgs {
    #[command(subcommand)]
    pub(crate) action: SystemAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SystemAction {
    Df(DfArgs),
    InitStore(InitStoreArgs),
}

/// Show what sandboxes, layers, templates, volumes and logs take on disk
///
/// What sandboxes and templates share is under `layers`, once. What could not be measured is `-`, in JSON `null`. `sandbar prune` says what of it nobody needs.
///
/// With `--json`: `{version, parts}`, each of the parts `{name, count, bytes}`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sandbar system df --json")]
pub(crate) struct DfArgs {}

/// Make the data folder a btrfs of its own, where forks of running sandboxes are snapshots
///
/// For root, and a data folder without content on another file system. The file `store.btrfs` in the folder is mounted over it, and again by the next command
/// after the machine was restarted. It grows as it is used, to SIZE at most. Needs `mkfs.btrfs` (package `btrfs-progs`). See docs/forks.md.
///
/// With `--json`: `{version, home, file, size_bytes}`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sandbar system init-store --size 20G")]
pub(crate) struct InitStoreArgs {
    /// How large it may become: bytes, or a number with K, M, G or T (at least 256M)
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Size,
}

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
