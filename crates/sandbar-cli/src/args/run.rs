use std::ffi::OsString;

use clap::Args;

use crate::args::{CreationArgs, EnvArgs, ProcessArgs};
use crate::value::{CopyIn, CopyOut};

/// Run a command in a new sandbox and destroy the sandbox afterwards
///
/// Output passes unchanged, as it comes; the exit code is the command's own. It is run as it is typed, without a shell. However this
/// process ends, nothing of the sandbox is left, unless `--keep`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar run -- python3 -c 'print(6 * 7)'
  sandbar run --timeout 10s --memory 512M --cpus 1 -- sh -c 'make && make test'
  sandbar run -i -- wc -c < data.bin
  sandbar run --copy ./app:/home/user/app --out /home/user/app/dist:. -w /home/user/app -- make")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
    #[command(flatten)]
    pub(crate) env: EnvArgs,
    #[command(flatten)]
    pub(crate) creation: CreationArgs,
    /// Copy a file or folder of this machine into the sandbox before the command; may be given again
    ///
    /// As `cp -r`: into DST if that is a folder or ends with `/`, else as DST. Links inside SRC stay links. All or nothing.
    #[arg(long = "copy", value_name = "SRC:DST", help_heading = "Files", value_parser = CopyIn::parser())]
    pub(crate) copies_in: Vec<CopyIn>,
    /// Copy a file or folder out of the sandbox after the command, even if it failed; may be given again
    ///
    /// As `cp -r`: into DST if that is a folder or ends with `/`, else as DST. Links stay links. All or nothing.
    #[arg(long = "out", value_name = "SRC:DST", help_heading = "Files", value_parser = CopyOut::parser())]
    pub(crate) copies_out: Vec<CopyOut>,
    /// Keep the sandbox afterwards
    #[arg(long, help_heading = "Sandbox options")]
    pub(crate) keep: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD", help_heading = "Arguments")]
    pub(crate) command: Vec<OsString>,
}
