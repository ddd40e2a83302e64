//! What the host side tells the agent at its start.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use sandbar_engine::process::Rlimit;
use serde::{Deserialize, Serialize};

/// Version of [`AgentConfig`] that this agent reads.
pub const CONFIG_VERSION: u32 = 1;
/// Largest configuration that is read, in bytes.
pub const CONFIG_MAX_BYTES: usize = 4 << 20;
/// Where `sudo` in a sandbox finds the agent.
pub const SUDO_SOCKET: &str = "/run/sandbar/sudo.sock";
/// `PATH` of commands, unless the environment of the sandbox or of the request has another.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Configuration of the agent, as JSON on an inherited descriptor. Fields that an agent does not know are ignored;
/// a `version` it does not know is refused.
#[derive(Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentConfig {
    /// [`CONFIG_VERSION`].
    pub version: u32,
    /// Id of the sandbox.
    pub sandbox_id: String,
    /// Id of its template.
    pub template_id: String,
    /// User of requests that name none.
    pub default_user: String,
    /// Working folder of requests that name none; absent means the user's home.
    pub default_workdir: Option<String>,
    /// Environment of every command.
    pub env: BTreeMap<String, String>,
    /// What requests must carry as `X-Access-Token`; absent means nothing.
    pub access_token: Option<Token>,
    /// When the agent ends itself and with it the sandbox, in Unix milliseconds.
    pub deadline_unix_ms: Option<u64>,
    /// Limits of every command.
    pub rlimits: Vec<Rlimit>,
    /// How many ids the sandbox has.
    pub ids: IdMode,
    /// Whether `sudo` works.
    pub sudo: Sudo,
    /// Names of the capabilities that commands of `root` keep (`CAP_CHOWN`).
    pub root_capabilities: Vec<String>,
    /// Where the agent listens for `sudo`; absent means nowhere.
    pub sudo_socket: Option<PathBuf>,
    /// Folder with `passwd` and `group`.
    pub etc: PathBuf,
    /// Whom programs are to trust beside those whom the template trusts.
    pub authority: Option<AuthorityConfig>,
    /// The main command, started at once.
    pub main: Option<MainConfig>,
}

/// A certificate authority.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AuthorityConfig {
    /// Its certificate as PEM.
    pub certificate: String,
    /// What OpenSSL finds it by in a folder of certificates.
    pub subject_hash: String,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            version: CONFIG_VERSION,
            sandbox_id: String::new(),
            template_id: String::new(),
            default_user: "user".to_owned(),
            default_workdir: None,
            env: BTreeMap::new(),
            access_token: None,
            deadline_unix_ms: None,
            rlimits: Vec::new(),
            ids: IdMode::Mapped,
            sudo: Sudo::Allowed,
            root_capabilities: Vec::new(),
            sudo_socket: Some(PathBuf::from(SUDO_SOCKET)),
            etc: PathBuf::from("/etc"),
            authority: None,
            main: None,
        }
    }
}

impl AgentConfig {
    /// The configuration of a sandbox, everything else as by default.
    pub fn new(sandbox_id: impl Into<String>, template_id: impl Into<String>) -> Self {
        Self { sandbox_id: sandbox_id.into(), template_id: template_id.into(), ..Self::default() }
    }
}

impl fmt::Debug for AgentConfig {
    /// Without the values of the environment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentConfig")
            .field("version", &self.version)
            .field("sandbox_id", &self.sandbox_id)
            .field("template_id", &self.template_id)
            .field("default_user", &self.default_user)
            .field("env", &self.env.keys())
            .field("deadline_unix_ms", &self.deadline_unix_ms)
            .field("ids", &self.ids)
            .field("sudo", &self.sudo)
            .finish_non_exhaustive()
    }
}

/// The main command.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MainConfig {
    /// Program: a path, or a name looked up in the `PATH` of the process.
    pub program: String,
    /// Arguments after the program's name.
    pub args: Vec<String>,
    /// Environment over the sandbox's own.
    pub env: BTreeMap<String, String>,
    /// Working folder; absent means the sandbox's default.
    pub cwd: Option<String>,
    /// Who runs it; absent means the default user.
    pub user: Option<String>,
    /// What to do when it ends.
    pub restart: Restart,
}

impl fmt::Debug for MainConfig {
    /// Without arguments and environment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MainConfig")
            .field("program", &self.program)
            .field("restart", &self.restart)
            .finish_non_exhaustive()
    }
}

/// What to do when the main command ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// Leave it.
    #[default]
    No,
    /// Start it again if it failed.
    OnFailure,
    /// Start it again.
    Always,
}

/// A secret that no `Debug` shows.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// How many ids the sandbox's user namespace maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdMode {
    /// A range, root included: commands run as any user of `/etc/passwd`.
    Mapped,
    /// One: commands run as the agent's own user only.
    Single,
}

/// Whether `sudo` works in the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sudo {
    /// It does.
    Allowed,
    /// It answers with this reason.
    Denied {
        /// Why, and what would help.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_without_showing_secrets() {
        let mut config = AgentConfig::new("i1", "host");
        config.access_token = Some(Token("s3cret".into()));
        config.env.insert("KEY".into(), "s3cret".into());
        assert!(!format!("{config:?}{:?}", config.access_token).contains("s3cret"));
        let json = serde_json::to_string(&config).unwrap();
        let back: AgentConfig = serde_json::from_str(&json).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), json);
        let sparse: AgentConfig =
            serde_json::from_str(r#"{"version":1,"sandbox_id":"x","later":1}"#).unwrap();
        assert_eq!((sparse.default_user.as_str(), sparse.ids), ("user", IdMode::Mapped));
    }
}
