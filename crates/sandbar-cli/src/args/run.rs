use std::ffi::OsString;

use clap::Args;

use crate::args::{CreationArgs, EnvArgs, ProcessArgs};
use crate::value::{CopyIn, CopyOut};

/// Run a command in a new sandbox and destroy the sandbox afterwards
///
/// Output passes unchanged, as it comes; the exit code is the command's own. It is run as it is typed, without a shell. However this
/// process ends, nothing of the sandbox is left, unless `--keep`. SIGINT, SIGTERM and SIGHUP end it, unless they were ignored from the start, as
/// under `nohup`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar run -- python3 -c 'print(6 * 7)'
  sandbar run --timeout 10s --memory 512M --cpus 1 -- sh -c 'make && make test'
  sandbar run -i -- wc -c < data.bin
  sandbar run -T -- python3
  sandbar run --allow example.com -- curl -fsS https://example.com/
  sandbar run --copy ./app:/home/user/app --out /home/user/app/dist:./dist --replace \\
      -w /home/user/app -- make")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
    #[command(flatten)]
    pub(crate) env: EnvArgs,
    #[command(flatten)]
    pub(crate) creation: CreationArgs,
    /// Copy a file or folder of this machine into the sandbox before the command; may be given again
    ///
    /// Into DST, under SRC's own name, if DST ends with `/` or is a folder; else as DST. A file that is there is replaced by
    /// a file; folders are neither merged nor replaced: that is refused before the command runs. If SRC is a link, what it leads to is copied; links inside it stay links.
    /// The copy belongs to the sandbox's default user. All or nothing.
    #[arg(long = "copy", value_name = "SRC:DST", help_heading = "Files", value_parser = CopyIn::parser())]
    pub(crate) copies_in: Vec<CopyIn>,
    /// Copy a file or folder out of the sandbox after the command, even if it failed; may be given again
    ///
    /// Into DST, under SRC's own name, if DST ends with `/` or is a folder; else as DST. A file that is there is replaced by
    /// a file; folders are neither merged nor replaced, which is refused before the command runs, unless `--replace`. Links stay links, SRC itself included. Read with
    /// the rights of the command's user. All or nothing.
    #[arg(long = "out", value_name = "SRC:DST", help_heading = "Files", value_parser = CopyOut::parser())]
    pub(crate) copies_out: Vec<CopyOut>,
    /// Let each `--out` take the place of what is there, which is removed
    ///
    /// DST is then the copy's own path also if it is a folder, unless it ends with `/`.
    #[arg(long, help_heading = "Files", requires = "copies_out")]
    pub(crate) replace: bool,
    /// Keep the sandbox, also if the command could not be run; its id is told on a terminal, after a failure, and with `--json`
    #[arg(long, help_heading = "Sandbox options")]
    pub(crate) keep: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD", help_heading = "Arguments")]
    pub(crate) command: Vec<OsString>,
}
