use clap::{Args, ValueEnum};
use sandbar::SandboxName;

use crate::args::PolicyArgs;
use crate::value::sandbox_name;

/// Copy a sandbox
///
/// The copy has its files, those in `/tmp` too, its template, labels, environment, limits, deadline and policy, and goes its own way: what either writes afterwards the other never
/// sees. It has no processes, no name unless one is given, and no published ports. Running, sleeping and stopped ones can be copied; one that runs stands still
/// while it is copied, if anything runs in it. Prints the id of the copy.
///
/// With `--json`: `{version, id, parent, mechanism, copied_bytes, processes_preserved}`, as observed.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar fork demo
  sandbar fork demo --name demo-2 --allow example.com
  sandbar fork demo --volumes read-only --json")]
pub(crate) struct ForkArgs {
    /// Id, unambiguous beginning of an id, or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Name of the copy
    #[arg(long, value_name = "NAME", value_parser = sandbox_name)]
    pub(crate) name: Option<SandboxName>,
    /// What becomes of the volumes of one that has any: without this it is not copied
    #[arg(long, value_name = "HOW")]
    pub(crate) volumes: Option<VolumesArg>,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

/// What becomes of volumes in a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VolumesArg {
    /// The copy has them too and can't write to them
    ReadOnly,
}
