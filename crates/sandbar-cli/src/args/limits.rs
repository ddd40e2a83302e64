use clap::Args;

use crate::value::{Cpus, Disk, Memory, Pids};

/// Limits of a sandbox: the same for a new one and for one that runs.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct LimitArgs {
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
}
