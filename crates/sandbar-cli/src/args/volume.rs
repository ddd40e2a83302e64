use clap::{Args, Subcommand};
use sandbar::VolumeName;

use crate::value::contract;

/// Make, list and remove volumes: folders that outlive sandboxes
///
/// `run` and `create` mount one with `--volume NAME:/PATH`. Several sandboxes may have the same one at once. What is in it is the sandbox' user's, and no
/// sandbox' end takes anything of it.
#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  sandbar volume create cache
  sandbar run --volume cache:/home/user/.cache -- make
  sandbar volume ls
  sandbar volume rm cache")]
pub(crate) struct VolumeArgs {
    #[command(subcommand)]
    pub(crate) action: VolumeAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum VolumeAction {
    Create(VolumeNamesArgs),
    Ls(VolumeLsArgs),
    Show(VolumeShowArgs),
    Rm(VolumeRmArgs),
}

/// Make volumes and print their names
///
/// One that is there already stays as it is, with its content.
///
/// With `--json`: `{version, created, existing, failed}`, each an array of names.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sandbar volume create cache data")]
pub(crate) struct VolumeNamesArgs {
    /// Names: letters, digits, `_`, `.` and `-`
    #[arg(required = true, value_name = "NAME", value_parser = contract::<VolumeName>)]
    pub(crate) names: Vec<VolumeName>,
}

/// List volumes
///
/// With `--json`: `{version, volumes}`, each of the volumes `{name, attached, created_at, size_bytes}`. What is not known of one is `null`; one of which is not
/// known who holds it is attached.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar volume ls
  sandbar volume ls --unattached --json")]
pub(crate) struct VolumeLsArgs {
    /// Only those whose name begins with this
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// Only those that a sandbox holds, asleep and stopped ones included
    #[arg(long, conflicts_with = "unattached")]
    pub(crate) attached: bool,
    /// Only those that no sandbox holds
    #[arg(long)]
    pub(crate) unattached: bool,
}

/// Show a volume and the sandboxes that hold it
///
/// Exit code 1 means that it positively does not exist.
///
/// With `--json`: `{version, name, attached, created_at, size_bytes, sandboxes}`, each of the sandboxes `{id, name, state, path}`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sandbar volume show cache")]
pub(crate) struct VolumeShowArgs {
    /// Its name
    #[arg(value_name = "NAME", value_parser = contract::<VolumeName>)]
    pub(crate) name: VolumeName,
}

/// Remove volumes with all that is in them
///
/// One that a sandbox holds, asleep and stopped ones included, is not removed. Exit code 1 means that one positively did not exist; the others are removed
/// all the same.
///
/// With `--json`: `{version, removed, absent, failed}`, each an array of names.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sandbar volume rm cache")]
pub(crate) struct VolumeRmArgs {
    /// Names
    #[arg(required = true, value_name = "NAME", value_parser = contract::<VolumeName>)]
    pub(crate) names: Vec<VolumeName>,
}
