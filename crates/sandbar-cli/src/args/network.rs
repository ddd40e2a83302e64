use clap::{Args, Subcommand};

use crate::args::PolicyArgs;

/// Show or change what a sandbox may reach
///
/// Without `set`: the policy in force, the gateway through which all goes, and what it counted since the sandbox started. Where the gateway is down the
/// sandbox has no network, and what it counted is not known.
///
/// With `--json`: `{version, id, policy, gateway, counters}`, the policy as `--egress-policy` takes it.
#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  sandbar network demo
  sandbar network demo set --allow example.com --allow '*.example.org:443'
  sandbar network demo set --deny-all")]
pub(crate) struct NetworkArgs {
    /// Id, unambiguous beginning of an id, or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(subcommand)]
    pub(crate) action: Option<NetworkAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NetworkAction {
    Set(Box<SetNetworkArgs>),
}

/// Put another policy in the place of the one in force, at once
///
/// All of it: rules that are not named again are gone, headers to inject included, so at least one option is needed. Connections that the new policy does not
/// allow are cut before this ends. Prints the new state, as `sandbar network ID` does.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar network demo set --allow example.com --allow-cidr 10.1.0.0/16:5432
  sandbar network demo set --allow-all --deny-cidr 192.0.2.0/24
  sandbar network demo set --egress-policy policy.json
  sandbar network demo set --deny-all")]
pub(crate) struct SetNetworkArgs {
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}
