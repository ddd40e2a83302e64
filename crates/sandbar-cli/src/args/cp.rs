use clap::Args;

use crate::value::Place;

/// Copy a file or folder into, out of, or between sandboxes
///
/// Either side is `ID:/PATH` in a sandbox or a path of this machine; write `./a:b` for a name with a colon.
///
/// Where it goes is as with `cp -r`: into DST, under SRC's own name, if DST ends with `/` or is a folder; else as DST. The folder that takes
/// it has to exist. A file that is there is replaced by a file; folders are not merged: if one is in the copy's place the copy is refused,
/// unless `--replace`. `SRC/` and `SRC/.` are SRC.
///
/// Links stay links; only SRC itself is followed, if it is a path of this machine. Content, permission bits, times of change, hard links and
/// empty folders are kept, privilege bits and owners are not: in a sandbox the copy belongs to its default user, on this machine to you, with
/// your umask. Sockets, pipes and devices are refused.
///
/// All or nothing: it is made under a temporary name beside DST and put in its place when it is whole; what fails or is interrupted leaves
/// nothing. Trees need a `tar` in the sandbox, and so do files that go in.
///
/// With `--json`: `{version, files, bytes, duration}`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar cp app demo:/home/user/
  sandbar cp demo:/home/user/app/dist .
  sandbar cp --replace demo:/home/user/app/dist ./dist
  sandbar cp demo:/home/user/data other:/home/user/")]
pub(crate) struct CpArgs {
    /// What to copy
    #[arg(value_name = "SRC", value_parser = Place::parser())]
    pub(crate) source: Place,
    /// Where to
    #[arg(value_name = "DST", value_parser = Place::parser())]
    pub(crate) target: Place,
    /// Let the copy take the place of what is there, which is removed
    ///
    /// DST is then the copy's own path also if it is a folder, unless it ends with `/`.
    #[arg(long)]
    pub(crate) replace: bool,
}
