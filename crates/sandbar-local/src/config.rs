use std::path::PathBuf;
use std::time::Duration;

use sandbar_core::{ErrorKind, Result};
use sandbar_observe::AuditConfig;

use crate::env::{self, Environment};
use crate::error::fail;

/// The backend's name.
pub(crate) const BACKEND: &str = "local";
/// Memory of a sandbox unless told otherwise, in bytes: enough for a compiler or a Node server, small enough for several on a laptop.
pub const DEFAULT_MEMORY: u64 = 2 << 30;
/// Processes and threads of a sandbox unless told otherwise: a JVM and a parallel build fit, a fork bomb stays small.
pub const DEFAULT_PIDS: u32 = 1024;
/// Writable disk space of a sandbox unless told otherwise, in bytes: dependency trees fit, and a few runaways do not fill a disk.
pub const DEFAULT_DISK: u64 = 10 << 30;
/// Lifetime of a sandbox unless told otherwise: the reference's own hour.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(3600);
/// How long a creation waits for its template's READY command unless told otherwise: what the field's own service allows a build to take for it.
pub const DEFAULT_READY_WITHIN: Duration = Duration::from_secs(300);
/// Folder of root's sandboxes.
const ROOT_HOME: &str = "/var/lib/sandbar";

/// How to open the local backend. Everything has a default.
#[derive(Clone, Debug, Default)]
pub struct LocalConfig {
    /// The data folder; absent: `$SANDBAR_HOME`, else `/var/lib/sandbar` for root, else `$XDG_DATA_HOME/sandbar`, else
    /// `~/.local/share/sandbar`.
    pub home: Option<PathBuf>,
    /// The `sandbar` executable; absent: `$SANDBAR_HELPER`, else beside the current executable, else in `PATH`.
    pub helper: Option<PathBuf>,
    /// Limits and lifetime of sandboxes that ask for none.
    pub defaults: Defaults,
    /// Whether the next sandbox is made ready in advance.
    pub spare: Spare,
    /// Where what happens to sandboxes with nobody looking is recorded: their ends, kills by their limits, take-overs. What callers do is recorded by
    /// [`sandbar_observe::Observed`].
    pub audit: Option<AuditConfig>,
}

/// Whether a provider makes the next sandbox ready in advance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spare {
    /// From its second creation on a provider keeps one sandbox's namespaces and mounts ready, in the shape of the last one: the next `create` of that
    /// shape takes a fraction of the time. It costs an idle sandbox' memory, has no record and knows no secret, and ends with the provider.
    #[default]
    Kept,
    /// Nothing is made before it is asked for.
    None,
}

/// What a sandbox gets that asks for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Processor time in thousandths of a core; `None` is no limit, since an idle core helps nobody.
    pub cpu_millis: Option<u32>,
    /// Processes and threads.
    pub pids: Option<u32>,
    /// Writable disk space in bytes.
    pub disk_bytes: Option<u64>,
    /// Lifetime; `None` is until it is destroyed.
    pub deadline: Option<Duration>,
    /// How long a creation waits until its template's READY command succeeds.
    pub ready_within: Duration,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            memory_bytes: Some(DEFAULT_MEMORY),
            cpu_millis: None,
            pids: Some(DEFAULT_PIDS),
            disk_bytes: Some(DEFAULT_DISK),
            deadline: Some(DEFAULT_DEADLINE),
            ready_within: DEFAULT_READY_WITHIN,
        }
    }
}

impl LocalConfig {
    /// Defaults throughout.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the data folder.
    pub fn with_home(mut self, home: impl Into<PathBuf>) -> Self {
        self.home = Some(home.into());
        self
    }

    /// Sets the `sandbar` executable.
    pub fn with_helper(mut self, helper: impl Into<PathBuf>) -> Self {
        self.helper = Some(helper.into());
        self
    }

    /// Sets limits and lifetime of sandboxes that ask for none.
    pub fn with_defaults(mut self, defaults: Defaults) -> Self {
        self.defaults = defaults;
        self
    }

    /// Sets whether the next sandbox is made ready in advance.
    pub fn with_spare(mut self, spare: Spare) -> Self {
        self.spare = spare;
        self
    }

    /// Sets where what happens to new sandboxes with nobody looking is recorded.
    pub fn with_audit(mut self, audit: AuditConfig) -> Self {
        self.audit = Some(audit);
        self
    }

    /// Where the data folder is, by the rules of [`LocalConfig::home`]. Nothing is made.
    pub fn data_folder(&self) -> Result<PathBuf> {
        self.resolve_home(&Environment::read())
    }

    /// The same, in this environment.
    pub(crate) fn resolve_home(&self, environment: &Environment) -> Result<PathBuf> {
        let home = if let Some(home) = self.home.as_ref().or(environment.sandbar_home.as_ref()) {
            home.clone()
        } else if rustix::process::geteuid().is_root() {
            ROOT_HOME.into()
        } else if let Some(data) = &environment.xdg_data_home {
            data.join("sandbar")
        } else if let Some(home) = &environment.home {
            home.join(".local/share/sandbar")
        } else {
            return Err(fail(
                ErrorKind::Config,
                "open",
                "there is no place for the data folder: `HOME` is not set",
            )
            .with_hint(format!("set `{}` to a folder of your own", env::HOME)));
        };
        std::path::absolute(&home)
            .map_err(|cause| crate::error::io_error("open", &format!("`{}`", home.display()), cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_folder_is_chosen_in_order() {
        let environment = Environment {
            sandbar_home: Some("/a".into()),
            xdg_data_home: Some("/b".into()),
            home: Some("/c".into()),
            ..Environment::default()
        };
        let resolve =
            |config: &LocalConfig, environment: &Environment| config.resolve_home(environment).unwrap();
        assert_eq!(resolve(&LocalConfig::new().with_home("/d"), &environment), PathBuf::from("/d"));
        assert_eq!(resolve(&LocalConfig::new(), &environment), PathBuf::from("/a"));
        let fallback = resolve(&LocalConfig::new(), &Environment { sandbar_home: None, ..environment });
        let expected = if rustix::process::geteuid().is_root() { ROOT_HOME } else { "/b/sandbar" };
        assert_eq!(fallback, PathBuf::from(expected));
    }
}
