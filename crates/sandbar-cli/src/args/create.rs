use std::ffi::OsString;

use clap::Args;
use sandbar::{GuestPath, UserName};

use crate::args::{CreationArgs, EnvArgs};
use crate::value::{RestartArg, contract};

/// Make a sandbox and print its id
///
/// It lives until it is destroyed or its deadline passes: an hour from now, unless `--deadline` says otherwise. At its deadline it is
/// destroyed with all it holds. An environment given here is stored with it, and every command in it gets it.
///
/// A command given here is its main command. It is started with the sandbox, as it is typed, without a shell, and one that can't be started makes
/// no sandbox. `logs` shows what it says. Its end does not end the sandbox.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar create --name demo --label team=core --deadline 1h
  id=$(sandbar create --memory 512M)
  sandbar create --allow '*.example.org' --inject api.example.com=authorization:env:API_AUTH
  sandbar create --name web -p 8080 --restart on-failure -- python3 -m http.server 8080")]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    pub(crate) creation: CreationArgs,
    #[command(flatten)]
    pub(crate) env: EnvArgs,
    /// What to do when the main command ends: `no`, `on-failure` or `always` start it again [default: no]
    ///
    /// It is started again after a pause, which grows from 100ms to a minute while it keeps ending within ten seconds.
    #[arg(long, value_name = "POLICY", requires = "command", help_heading = "Main command options")]
    pub(crate) restart: Option<RestartArg>,
    /// Who runs the main command, such as `user` or `root` [default: the template's own user]
    #[arg(short, long, value_name = "USER", value_parser = contract::<UserName>, requires = "command",
        help_heading = "Main command options")]
    pub(crate) user: Option<UserName>,
    /// Working folder of the main command [default: the user's home]
    #[arg(short = 'w', long = "workdir", value_name = "DIR", value_parser = contract::<GuestPath>, requires = "command",
        help_heading = "Main command options")]
    pub(crate) workdir: Option<GuestPath>,
    /// The main command and its arguments
    #[arg(last = true, value_name = "CMD", help_heading = "Arguments")]
    pub(crate) command: Vec<OsString>,
}
