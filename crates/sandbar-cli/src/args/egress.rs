use clap::{Args, Subcommand};

use crate::args::PolicyArgs;
use crate::value::{Count, EgressPeer, Since};

/// Show, explain and check what sandboxes can reach
#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  sandbar egress log demo -f --denied
  sandbar egress why demo example.com:443
  sandbar egress verify --allow example.com --json

`sandbar network` shows and changes what a sandbox may reach. `--json` is taken by all of them.")]
pub(crate) struct EgressArgs {
    #[command(subcommand)]
    pub(crate) action: EgressAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EgressAction {
    Log(EgressLogArgs),
    Why(EgressWhyArgs),
    Verify(Box<EgressVerifyArgs>),
}

/// Show what a sandbox's gateway allowed and denied
///
/// A line per decision, oldest first: when, how, about what, whom, and why; then the rule that decided and, at the end of a connection, the bytes that
/// went out and came in. The newest ones are kept, within bounds. Where the same comes too fast, one line stands for many and says how many (`times`): it is told
/// up to 5 s after the first of them, so that with `-f` it comes late, behind what is newer.
///
/// With `--json`: one object a line, `{version, at, kind, verdict, reason, sentence, name, address, port, rule, detail, bytes_out, bytes_in, repeated, may_retry}`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar egress log demo --tail 20
  sandbar egress log demo -f --denied
  sandbar egress log demo --since 10m --json | jq -r .name")]
pub(crate) struct EgressLogArgs {
    /// Id, unambiguous beginning of an id, or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Go on with what will be decided, until the sandbox ends, or until Ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only the last so many of those that would be shown
    #[arg(long, value_name = "COUNT")]
    pub(crate) tail: Option<Count>,
    /// Only what was decided since then: a time in RFC 3339, or how long ago, such as 10m
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<Since>,
    /// Only what was denied
    #[arg(long)]
    pub(crate) denied: bool,
}

/// Tell whether a sandbox may reach a host, and why
///
/// Nothing is connected or looked up: this is what the policy in force says. Whether the host answers, and whether its name leads to an address that may be
/// reached, shows only at a connection.
///
/// Exit code 0: allowed; 1: denied; 125: there is no such sandbox, or it can't be told. With `--json`: `{version, id, host, port, protocol, verdict, reason, sentence, rule,
/// may_retry}`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar egress why demo example.com
  sandbar egress why demo 192.0.2.1:5432
  sandbar egress why demo '[2001:db8::1]:53' --udp --json")]
pub(crate) struct EgressWhyArgs {
    /// Id, unambiguous beginning of an id, or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// A name or address, and a port [default port: 443]
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) peer: EgressPeer,
    /// By UDP, not TCP
    #[arg(long)]
    pub(crate) udp: bool,
}

/// Try what a sandbox can reach
///
/// Makes a sandbox with this policy, tries every way out from within, and destroys it. `filtered` is said only if every way that is denied was tried and refused
/// while this machine itself could go there. Under `--allow-all` the answer is `open`.
///
/// Exit code 0: filtered; 1: open; 125: inconclusive, or it failed. With `--json`: `{version, state, detail, remediation, legs}`, each of the legs with `name`,
/// `outcome`, `class` and `detail`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar egress verify
  sandbar egress verify --allow example.com:443 --full
  sandbar egress verify --full --json")]
pub(crate) struct EgressVerifyArgs {
    /// Try every leak that is known, not only one for each way out
    #[arg(long)]
    pub(crate) full: bool,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}
