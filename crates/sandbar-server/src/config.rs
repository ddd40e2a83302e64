use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sandbar_core::{Error, ErrorKind, Result};

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
    /// How long the head of a request may take, and how long a connection may be idle before it.
    pub head_limit: Duration,
}

impl ServerConfig {
    /// Refuses what can't be meant, before anything is done.
    pub fn check(&self) -> Result<()> {
        let refused = |what: String, expected: &str| {
            Err(Error::new(ErrorKind::Config, "serve", format!("{what}: expected {expected}")))
        };
        if let Some(url) = &self.public_url
            && !is_origin(url)
        {
            return refused(format!("the public URL `{url}`"), "an origin such as `https://api.example.com`");
        }
        if let Some(domain) = &self.domain
            && !is_domain(domain)
        {
            let expected = "a name such as `sandbox.example.com`, with `:PORT` where that is not 443";
            return refused(format!("the domain `{domain}`"), expected);
        }
        let Limits { sandboxes, sleeping: _, requests_per_second, burst: _, longest_timeout } = self.limits;
        if sandboxes == 0 || requests_per_second == 0 || longest_timeout < Duration::from_secs(1) {
            let expected = "at least one sandbox, one request a second and one second for a sandbox";
            return refused("a key that may nothing".to_owned(), expected);
        }
        Ok(())
    }
}

/// Whether this is scheme, host and port, and nothing that clients would drop.
fn is_origin(url: &str) -> bool {
    let Ok(parsed) = url.parse::<http::Uri>() else { return false };
    let is_web = matches!(parsed.scheme_str(), Some("http" | "https"));
    let has_host = parsed.host().is_some_and(|host| !host.is_empty())
        && parsed.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    is_web && has_host && parsed.query().is_none() && matches!(parsed.path(), "" | "/")
}

/// Whether sandboxes can have names below it.
fn is_domain(domain: &str) -> bool {
    let (name, port) = match domain.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (domain, None),
    };
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port != 0));
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    is_port && name.len() <= MAX_DOMAIN && name.split('.').all(is_label)
}

/// Longest domain, in bytes: a name has 253 at most, and a label of a sandbox is to fit before it.
const MAX_DOMAIN: usize = 189;

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
    /// Sandboxes that sleep, beside those: each keeps its memory and its files.
    pub sleeping: u32,
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
            sleeping: DEFAULT_SLEEPING,
            requests_per_second: DEFAULT_REQUESTS_PER_SECOND,
            burst: DEFAULT_BURST,
            longest_timeout: DEFAULT_LONGEST_TIMEOUT,
        }
    }
}

/// Sandboxes at once of one key: what E2B's paid plan begins with.
pub const DEFAULT_SANDBOXES: u32 = 100;

/// Sandboxes that sleep of one key: as many again.
pub const DEFAULT_SLEEPING: u32 = DEFAULT_SANDBOXES;

/// Requests a second of one key: far above what a person or a test does, far below what one core answers.
pub const DEFAULT_REQUESTS_PER_SECOND: u32 = 500;

/// Requests at once on top of that: an evaluation that starts everything at one moment.
pub const DEFAULT_BURST: u32 = 1000;

/// Longest time of a sandbox: 24 hours, as E2B's paid plan.
pub const DEFAULT_LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// How long the head of a request may take, and a connection be idle before it: SDKs keep theirs for less, or look before they use one.
pub const DEFAULT_HEAD_LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_origins_and_domains_are_names() {
        for url in ["https://api.example.com", "http://10.0.0.1:3000/", "http://[::1]:80"] {
            assert!(is_origin(url), "{url}");
        }
        for bad in [
            "foo",
            "",
            "ftp://x.test",
            "https://",
            "https://x.test/api",
            "https://x.test?a",
            "https://a@x.test",
        ] {
            assert!(!is_origin(bad), "{bad}");
        }
        for domain in ["sbx.test", "sbx.test:8443", "localhost", "A-1.example.com"] {
            assert!(is_domain(domain), "{domain}");
        }
        for bad in
            ["", "*.x", "../x", "x.", ".x", "x..y", "-x", "x:0", "x:y", "x/y", "x y", &"a.".repeat(120)]
        {
            assert!(!is_domain(bad), "{bad}");
        }
    }
}
