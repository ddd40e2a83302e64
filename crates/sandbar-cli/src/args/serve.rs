use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sandbar_server::{DEFAULT_REQUESTS_PER_SECOND, DEFAULT_SANDBOXES, DEFAULT_SLEEPING};

use crate::value::HumanDuration;

/// Serve E2B's API, so that the official SDKs work on this machine
///
/// The first start makes an API key and prints it once. What it prints on standard output is to be pasted into a shell; what goes on is on standard error. At
/// the end sandboxes stay; the next start finds them.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar serve
  sandbar serve --listen 0.0.0.0:443 --domain sandbox.example.com --tls-cert chain.pem --tls-key key.pem")]
pub(crate) struct ServeArgs {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:3000", value_parser = address)]
    pub(crate) listen: SocketAddr,
    /// Domain whose names `PORT-ID.DOMAIN` lead here, with `:PORT` where that is not 443
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<String>,
    /// Certificate chain for TLS, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Origin under which clients reach it, if that is another than where it listens
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,
    /// Folder of the server's own store: keys, names of templates, builds
    ///
    /// Without it, `server` in the data folder of local sandboxes.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    /// What sandboxes reach whose creator says nothing of the network
    #[arg(long, value_name = "WHAT", default_value = "internet")]
    pub(crate) default_egress: EgressArg,
    /// Packages of the template `code-interpreter-v1`, which this machine's pip fetches at the first start
    #[arg(long, value_name = "SET", default_value = "full")]
    pub(crate) code_interpreter: CodeInterpreterArg,
    /// Folder that its packages lie in, instead of fetching them
    #[arg(long, value_name = "FOLDER", conflicts_with = "code_interpreter")]
    pub(crate) code_interpreter_packages: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) limits: KeyLimitArgs,
    /// Where else to listen, for Prometheus and nothing else
    ///
    /// Without it `/metrics` is answered beside the API, where that is reached from this machine alone.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// Form of what is said on standard error
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub(crate) log_format: LogFormatArg,
}

/// An address and port. `localhost` is this machine alone, whatever a resolver says.
fn address(text: &str) -> Result<SocketAddr, std::net::AddrParseError> {
    match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}").parse(),
        None => text.parse(),
    }
}

/// What one key may.
#[derive(Args, Debug)]
pub(crate) struct KeyLimitArgs {
    /// Sandboxes that one key may have at once, sleeping ones not counted
    #[arg(long = "max-sandboxes", value_name = "NUMBER", default_value_t = DEFAULT_SANDBOXES)]
    pub(crate) sandboxes: u32,
    /// Sandboxes of one key that may sleep beside those: each keeps its memory and its files
    #[arg(long = "max-sleeping", value_name = "NUMBER", default_value_t = DEFAULT_SLEEPING)]
    pub(crate) sleeping: u32,
    /// Requests of the control plane that one key may make a second
    #[arg(long = "max-rate", value_name = "NUMBER", default_value_t = DEFAULT_REQUESTS_PER_SECOND)]
    pub(crate) rate: u32,
    /// Longest time that a sandbox may be given at once
    #[arg(long = "max-timeout", value_name = "DURATION", default_value = "24h")]
    pub(crate) timeout: HumanDuration,
}

/// What a sandbox reaches by default.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum EgressArg {
    /// Public addresses, as E2B does
    Internet,
    /// Nothing
    None,
}

/// Packages of the code interpreter.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum CodeInterpreterArg {
    /// What the service needs, and numpy, pandas, matplotlib, pillow and requests
    Full,
    /// What the service needs
    Minimal,
    /// There is no such template
    Off,
}

/// Form of logs.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormatArg {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}
