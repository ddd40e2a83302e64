//! What may be typed. These types hold data and nothing else; `settings` turns them into what was meant.

mod archive;
mod audit;
mod build;
mod cp;
mod create;
mod creation;
mod destroy;
mod doctor;
mod egress;
mod exec;
mod fork;
mod key;
mod limits;
mod logs;
mod ls;
mod network;
mod pause;
mod policy;
mod port;
mod processes;
mod resources;
mod run;
mod serve;
mod shell;
mod shell_help;
mod stats;
mod system;
mod template;
mod usage;
mod volume;
mod watch;

use clap::{Args, Parser, Subcommand};

use crate::value::AuditArg;
pub(crate) use cp::CpArgs;

pub(crate) use archive::{ExportArgs, ImportArgs};
pub(crate) use audit::AuditArgs;
pub(crate) use build::{TemplateBuildArgs, TemplateCommitArgs};
pub(crate) use create::CreateArgs;
pub(crate) use creation::CreationArgs;
pub(crate) use destroy::DestroyArgs;
pub(crate) use doctor::DoctorArgs;
pub(crate) use egress::{EgressAction, EgressArgs, EgressLogArgs, EgressVerifyArgs, EgressWhyArgs};
pub(crate) use exec::{EnvArgs, ExecArgs, ProcessArgs};
pub(crate) use fork::{ForkArgs, VolumesArg};
pub(crate) use key::{KeyAction, KeyArgs};
pub(crate) use limits::LimitArgs;
pub(crate) use logs::LogsArgs;
pub(crate) use ls::{DescribeArgs, LsArgs};
pub(crate) use network::{NetworkAction, NetworkArgs};
pub(crate) use pause::{PauseArgs, ResumeArgs};
pub(crate) use policy::PolicyArgs;
pub(crate) use port::PortArgs;
pub(crate) use processes::{AttachArgs, KillArgs, PsArgs};
pub(crate) use resources::ResourcesArgs;
pub(crate) use run::RunArgs;
pub(crate) use serve::{CodeInterpreterArg, EgressArg, LogFormatArg, ServeArgs};
pub(crate) use shell::ShellArgs;
pub(crate) use shell_help::{CompletionsArgs, ManArgs, Shell};
pub(crate) use stats::StatsArgs;
pub(crate) use system::{InitStoreArgs, PruneArgs, SystemAction, SystemArgs};
pub(crate) use template::{
    OwnerArg, TemplateAction, TemplateArgs, TemplateExportArgs, TemplateImportArgs, TemplateLsArgs,
    TemplatePullArgs,
};
pub(crate) use usage::UsageArgs;
pub(crate) use volume::{VolumeAction, VolumeArgs, VolumeLsArgs};
pub(crate) use watch::WatchArgs;

/// Run code that nobody should trust.
#[derive(Debug, Parser)]
#[command(name = "sandbar", version, max_term_width = 110)]
#[command(after_help = "\
Examples:
  sandbar run -- python3 -c 'print(6 * 7)'
  sandbar run --timeout 10s --memory 512M -- sh -c 'make && make test'
  id=$(sandbar create); sandbar exec $id -- uname -a; sandbar destroy $id

Exit codes: of `run`, `exec`, `shell` and `attach` the command's own, 124 timed out, 126 not
executable, 127 not found, 128+n ended by signal n; of the others 0 done, 1 positively absent
(`doctor`: something is missing; `egress why`: denied; `egress verify`: open); of all 2 usage, 125
Sandbar failed.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that every command takes.
#[derive(Args, Debug)]
pub(crate) struct GlobalArgs {
    /// Where sandboxes run: `local`, `e2b`, or a URL such as `local:/path/to/data`
    ///
    /// `e2b` is E2B's cloud, with the key in `E2B_API_KEY`; `e2b:http://host:port` is a server that speaks its API. Without it `SANDBAR_URL`
    /// counts, then `local`.
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    pub(crate) provider: Option<String>,
    /// Print JSON, errors included
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,
    /// Say on stderr what is done
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub(crate) verbose: bool,
    /// Record what is done in FILE, or `default`; `FILE,best-effort` goes on where that can't be written
    ///
    /// Operations that can't be recorded are refused, except the end of a sandbox. `,size=SIZE` and `,keep=N` say when a file makes way for
    /// another, and how many older ones are kept. Without it `SANDBAR_AUDIT` counts. See docs/audit.md.
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options", hide_short_help = true)]
    pub(crate) audit: Option<AuditArg>,
    /// The trace that this belongs to (W3C Trace Context), passed on to commands
    ///
    /// Without it `TRACEPARENT` counts, with `TRACESTATE`. One that is not valid begins a new trace.
    #[arg(
        long,
        global = true,
        value_name = "PARENT",
        help_heading = "Global options",
        hide_short_help = true
    )]
    pub(crate) traceparent: Option<String>,
}

/// What each does is said at its own type, in short and at length.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<RunArgs>),
    Create(Box<CreateArgs>),
    Exec(Box<ExecArgs>),
    Shell(Box<ShellArgs>),
    Attach(AttachArgs),
    Ps(PsArgs),
    Kill(KillArgs),
    Watch(WatchArgs),
    Ls(LsArgs),
    Describe(DescribeArgs),
    Destroy(DestroyArgs),
    Pause(PauseArgs),
    Resume(ResumeArgs),
    Fork(Box<ForkArgs>),
    Template(TemplateArgs),
    Volume(VolumeArgs),
    Cp(CpArgs),
    Import(ImportArgs),
    Export(ExportArgs),
    Port(PortArgs),
    Network(NetworkArgs),
    Egress(EgressArgs),
    Logs(LogsArgs),
    Stats(StatsArgs),
    Resources(ResourcesArgs),
    Usage(UsageArgs),
    Serve(Box<ServeArgs>),
    Key(KeyArgs),
    Prune(PruneArgs),
    System(SystemArgs),
    /// Show what room there is for more sandboxes
    ///
    /// Disk space and inodes are those of where sandboxes are kept, memory is the machine's. What can't be measured is `-`, in JSON `null`.
    ///
    /// With `--json`: `{admits, disk_bytes, inodes, memory_bytes, detail}`; `admits` is false where none can be made, and `null` where that is not known.
    #[command(after_help = "Example:\n  sandbar capacity --json")]
    Capacity,
    Doctor(DoctorArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
    Audit(AuditArgs),
    /// Print the version
    #[command(after_help = "Example:\n  sandbar version --json")]
    Version,
}

impl Command {
    /// The word that was typed, of those that start processes: what goes wrong with these is told by it.
    pub(crate) fn starts(&self) -> Option<&'static str> {
        match self {
            Self::Run(_) => Some("run"),
            Self::Exec(_) => Some("exec"),
            Self::Shell(_) => Some("shell"),
            Self::Cp(_) => Some("cp"),
            _ => None,
        }
    }
}
