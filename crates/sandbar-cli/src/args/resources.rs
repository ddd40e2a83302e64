use clap::Args;

use crate::value::{Cpus, Disk, Memory, Pids};

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
    /// Memory: bytes, or with K, M, G, T (powers of 1024); at least 4M
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Memory>,
    /// Processor time in cores, such as 0.5; at least 0.01
    #[arg(long, value_name = "CORES")]
    pub(crate) cpus: Option<Cpus>,
    /// Processes and threads, 1 to 4194304
    #[arg(long, value_name = "COUNT")]
    pub(crate) pids: Option<Pids>,
    /// Writable disk space; at least 1M
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<Disk>,
    /// Fail unless what is changed is enforced and not merely watched
    #[arg(long)]
    pub(crate) require_enforced_limits: bool,
}
