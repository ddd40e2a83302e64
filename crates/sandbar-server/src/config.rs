use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What a server is told.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The domain below which `{port}-{id}` names are its own, with the port where that is not 443: what SDKs are told as `domain`.
    pub domain: Option<String>,
    /// Certificate and key, for TLS.
    pub tls: Option<TlsFiles>,
    /// The folder of its store, made with mode 0700 if it is not there.
    pub data: PathBuf,
    /// What a sandbox reaches whose creator says nothing about the network.
    pub default_egress: DefaultEgress,
    /// What one key may.
    pub limits: Limits,
    /// The origin under which clients reach it, such as `https://api.example.com`; made of the address if absent.
    pub public_url: Option<String>,
    /// Where the packages of `code-interpreter-v1` come from.
    pub code_interpreter: CodeInterpreter,
    /// Where else it listens, for scrapes of its counts and nothing else. Without it they are answered beside the control plane where only this machine reaches that.
    pub metrics_listen: Option<SocketAddr>,
}

/// Where the packages of the template `code-interpreter-v1` come from. It is made at the first start, in the background.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CodeInterpreter {
    /// There is no such template; nothing is made or looked at.
    #[default]
    Off,
    /// This machine's pip fetches them, with its settings.
    Download(PackageSet),
    /// They lie in this folder.
    Folder(PathBuf),
}

/// Which packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackageSet {
    /// What the service itself needs.
    Minimal,
    /// Also what cells usually want: tables, pictures, charts, requests.
    Full,
}

/// The files of TLS, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// What a sandbox reaches whose creator says nothing about the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultEgress {
    /// Public addresses, as E2B does.
    #[default]
    Internet,
    /// Nothing.
    None,
}

/// What one key may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sandboxes at once, sleeping ones not counted.
    pub sandboxes: u32,
    /// Requests of the control plane a second, on average.
    pub requests_per_second: u32,
    /// Requests of the control plane at once on top of the average.
    pub burst: u32,
    /// Longest time that a sandbox may be given at once.
    pub longest_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sandboxes: DEFAULT_SANDBOXES,
            requests_per_second: DEFAULT_REQUESTS_PER_SECOND,
            burst: DEFAULT_BURST,
            longest_timeout: DEFAULT_LONGEST_TIMEOUT,
        }
    }
}

/// Sandboxes at once of one key: what E2B's paid plan begins with.
pub const DEFAULT_SANDBOXES: u32 = 100;

/// Requests a second of one key: far above what a person or a test does, far below what one core answers.
pub const DEFAULT_REQUESTS_PER_SECOND: u32 = 500;

/// Requests at once on top of that: an evaluation that starts everything at one moment.
pub const DEFAULT_BURST: u32 = 1000;

/// Longest time of a sandbox: 24 hours, as E2B's paid plan.
pub const DEFAULT_LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
