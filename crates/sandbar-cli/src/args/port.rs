use clap::Args;

use crate::value::{Listen, Port};

/// Make a port inside reachable from this machine, or show which are
///
/// Prints the address. Without PORT: every published port and its address. A port that is published already keeps its address. It is
/// reachable until the sandbox ends, or `--remove`; inside, whatever listens has to do so on `localhost` or all addresses.
///
/// With `--json`: `{version, id, ports}`, each of the ports with `guest`, `host`, `port` and `open`, which is whether others than this
/// machine can reach it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar port demo 8000
  sandbar port demo 8000 --listen 127.0.0.1:8080
  sandbar port demo 8000 --remove
  sandbar port demo")]
pub(crate) struct PortArgs {
    /// Id, unambiguous beginning of an id, or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The port inside
    #[arg(value_name = "PORT")]
    pub(crate) port: Option<Port>,
    /// Where: an address of this machine, a port of it, or both, such as `127.0.0.1:8080` or `[::1]:8080`
    ///
    /// Without a port, or with port 0: any free one. Without an address: 127.0.0.1, which nobody but this machine can reach. On any other
    /// address everybody who can reach this machine there can reach the port.
    #[arg(long, value_name = "ADDR", requires = "port", conflicts_with = "remove")]
    pub(crate) listen: Option<Listen>,
    /// Take it back: nothing is taken at its address any more, and its connections end; exit code 1 if it was not published
    #[arg(long, requires = "port")]
    pub(crate) remove: bool,
}
