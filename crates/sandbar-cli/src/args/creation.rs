use clap::Args;
use sandbar::{SandboxName, TemplateId};

use crate::value::{Cpus, HumanDuration, Mount, Pair, Port, Size, contract};

/// What a new sandbox shall be: the same for `run` and `create`.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Sandbox options")]
pub(crate) struct CreationArgs {
    /// What it boots from [default: the backend's own; `local`: `host`]
    #[arg(short, long, value_name = "TEMPLATE", value_parser = contract::<TemplateId>)]
    pub(crate) template: Option<TemplateId>,
    /// A name for it, unique among the sandboxes that exist
    #[arg(long, value_name = "NAME", value_parser = contract::<SandboxName>)]
    pub(crate) name: Option<SandboxName>,
    /// A label; may be given again
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub(crate) labels: Vec<Pair>,
    /// Memory: bytes, or with K, M, G, T (powers of 1024)
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Size>,
    /// Processor time in cores, such as 0.5
    #[arg(long, value_name = "CORES")]
    pub(crate) cpus: Option<Cpus>,
    /// Processes and threads
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pids: Option<u32>,
    /// Writable disk space
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<Size>,
    /// Refuse to start unless every limit asked for is enforced, not merely watched
    #[arg(long)]
    pub(crate) require_enforced_limits: bool,
    /// A file or folder of this machine to show inside, read-only unless `:rw`; may be given again
    ///
    /// A colon in a path is written `\:`.
    #[arg(long = "mount", value_name = "HOST:GUEST[:rw]", value_parser = Mount::parser())]
    pub(crate) mounts: Vec<Mount>,
    /// A port inside to make reachable from this machine; `describe` says where; may be given again
    #[arg(short, long = "port", value_name = "PORT")]
    pub(crate) ports: Vec<Port>,
    /// How long it may live, such as 90s or 1h30m [default: the backend's own]
    #[arg(long, value_name = "DURATION")]
    pub(crate) deadline: Option<HumanDuration>,
}
