use clap::Args;
use sandbar::{ProjectId, SandboxName, TemplateId};

use crate::args::{LimitArgs, PolicyArgs};
use crate::value::{
    HumanDuration, Mount, OnTimeoutArg, Pair, Publication, VolumeArg, contract, sandbox_name,
};

/// What a new sandbox shall be: the same for `run` and `create`.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Sandbox options")]
pub(crate) struct CreationArgs {
    /// What it boots from [default: the backend's own; `local`: `host`]
    #[arg(short, long, value_name = "TEMPLATE", value_parser = contract::<TemplateId>)]
    pub(crate) template: Option<TemplateId>,
    /// A name for it, unique among the sandboxes that exist, and not shaped like an id
    #[arg(long, value_name = "NAME", value_parser = sandbox_name)]
    pub(crate) name: Option<SandboxName>,
    /// A label; may be given again
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub(crate) labels: Vec<Pair>,
    /// The project that it belongs to; `ls --project` lists those of one
    #[arg(long, value_name = "PROJECT", value_parser = contract::<ProjectId>)]
    pub(crate) project: Option<ProjectId>,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    /// Fail unless every limit, defaults included, is enforced and not merely watched; of disk only if `--disk` is given
    #[arg(long)]
    pub(crate) require_enforced_limits: bool,
    /// A file or folder of this machine to show inside, read-only unless `:rw`; may be given again
    ///
    /// A colon in a path is written `\:`.
    #[arg(long = "mount", value_name = "HOST:GUEST[:rw]", value_parser = Mount::parser())]
    pub(crate) mounts: Vec<Mount>,
    /// A volume to mount inside, writable; missing folders are made; may be given again
    ///
    /// `sandbar volume create` makes one. It outlives the sandbox, and several sandboxes may have it at once.
    #[arg(long = "volume", value_name = "NAME:/PATH", value_parser = VolumeArg::parser())]
    pub(crate) volumes: Vec<VolumeArg>,
    /// A port inside to make reachable from this machine, at HOSTPORT or, without it or if it is 0, any free one; may be given again
    ///
    /// ADDR is `127.0.0.1` unless given, which nobody but this machine can reach; an address of version 6 stands in brackets. A place that
    /// somebody else has is a usage error, and nothing is made. `sandbar port ID` says where each port is.
    #[arg(short, long = "publish", visible_alias = "port", value_name = "[[ADDR:]HOSTPORT:]PORT")]
    pub(crate) ports: Vec<Publication>,
    /// How long it may live, such as 90s or 1h30m; then it is destroyed, whatever runs in it [default: `run` without `--keep`: as long
    /// as its command; else the backend's own, `local`: 1h]
    #[arg(long, value_name = "DURATION")]
    pub(crate) deadline: Option<HumanDuration>,
    /// What to do when its time is over: `destroy`, or `pause`, from which `resume` brings it back; `run` takes `pause` only with
    /// `--keep`, and ends when the sandbox goes to sleep [default: destroy]
    #[arg(long, value_name = "ACTION")]
    pub(crate) on_timeout: Option<OnTimeoutArg>,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}
