use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Make, list and remove API keys of `sandbar serve`
///
/// Each key is a tenant of its own and sees nothing of the others, unless `--tenant` puts it beside another.
#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  sandbar key create ci
  sandbar key ls
  sandbar key rm k0123456789ab")]
pub(crate) struct KeyArgs {
    /// Folder of the server's own store, as with `sandbar serve`
    #[arg(long, global = true, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) action: KeyAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyAction {
    Create(KeyCreateArgs),
    Ls(KeyLsArgs),
    Rm(KeyRmArgs),
}

/// Make a key and print it, once
///
/// With `--json`: `{version, key, id, tenant, name, created_at}`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  export E2B_API_KEY=$(sandbar key create ci)")]
pub(crate) struct KeyCreateArgs {
    /// A name, for people
    #[arg(value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(crate) name: String,
    /// The tenant that it is for; one of its own if absent
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
}

/// List keys, without what they are proved by
///
/// With `--json`: `{version, keys}`, each of the keys `{id, tenant, name, hint, created_at}`; the hint is its last four digits.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sandbar key ls --json")]
pub(crate) struct KeyLsArgs {}

/// Take keys back
///
/// A server that runs takes one for up to two seconds more. Sandboxes of its tenant stay.
///
/// With `--json`: `{version, removed, absent}`, each an array of ids.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sandbar key rm k0123456789ab")]
pub(crate) struct KeyRmArgs {
    /// Ids, as `sandbar key ls` shows them
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
}
