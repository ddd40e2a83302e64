use clap::Args;

use crate::args::{CreationArgs, EnvArgs};

/// Make a sandbox and print its id
///
/// It lives until it is destroyed or its deadline passes: an hour from now, unless `--deadline` says otherwise. At its deadline it is
/// destroyed with all it holds. An environment given here is stored with it, and every command in it gets it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar create --name demo --label team=core --deadline 1h
  id=$(sandbar create --memory 512M)")]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    pub(crate) creation: CreationArgs,
    #[command(flatten)]
    pub(crate) env: EnvArgs,
}
