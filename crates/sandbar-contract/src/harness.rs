use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use sandbar_core::{CreateOptions, Result, SandboxId, SandboxProvider};

/// Most cases that run at the same time unless the harness says otherwise: enough to hide waits, few enough for two cores.
const DEFAULT_PARALLELISM: usize = 8;

/// What the kit needs of a backend under test.
#[async_trait]
pub trait Harness: Send + Sync {
    /// The backend's name, as deviations have it.
    fn backend(&self) -> &str;

    /// The provider under test. Asked once a run.
    async fn provider(&self) -> Result<Arc<dyn SandboxProvider>>;

    /// What every sandbox of the kit starts from, such as the template to use.
    fn options(&self) -> CreateOptions {
        CreateOptions::new()
    }

    /// Why this backend lacks `feature`; `None` means that it has it. The default has none.
    fn lacks(&self, feature: Feature) -> Option<String> {
        Some(format!("the harness does not offer {feature}"))
    }

    /// A provider of its own that can be made to fail, if there is such a thing.
    async fn faulty(&self) -> Option<Faulty> {
        None
    }

    /// Ends all processes of a sandbox from outside, as a crash would; `false` if that can't be done here.
    async fn stop(&self, _sandbox: &SandboxId) -> bool {
        false
    }

    /// Most cases that run at the same time.
    fn parallelism(&self) -> usize {
        DEFAULT_PARALLELISM
    }

    /// Called once, after the last case.
    async fn cleanup(&self) {}
}

/// Something that not every backend or place can offer, and that no part of the contract stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// `python3` in the sandbox.
    Python,
    /// Commands may run as `root`.
    RootUser,
    /// Processes may have a terminal.
    Terminals,
    /// Folders of this machine can be mounted. Absent where the sandbox is elsewhere.
    HostMounts,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Python => "python3",
            Self::RootUser => "commands as root",
            Self::Terminals => "terminals",
            Self::HostMounts => "mounts of the host",
        })
    }
}

/// A failure to inject, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The next lookup of a sandbox fails.
    Lookup,
    /// The next listing of sandboxes breaks after its first record.
    Listing,
    /// The next create fails when half of it is done.
    Create,
    /// The next destroy fails.
    Destroy,
    /// The next lookup of a volume fails.
    Volumes,
    /// The next lookup of a template fails.
    Templates,
    /// The next `stat` of a file fails.
    Stat,
    /// How the next command ends is not learned.
    Exit,
}

/// A provider that can be made to fail.
#[derive(Clone)]
pub struct Faulty {
    /// The provider.
    pub provider: Arc<dyn SandboxProvider>,
    /// Arms a failure; `false` if it can't be injected.
    pub arm: Arc<dyn Fn(Fault) -> bool + Send + Sync>,
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").field("provider", &self.provider).finish_non_exhaustive()
    }
}
