use std::path::PathBuf;

use sandbar_core::Result;
use sandbar_engine::Host;

use super::examine::{self, Look};
use super::report::HostReport;
use super::wording::Facts;
use crate::config::LocalConfig;
use crate::env::Environment;

/// Looks at what this machine has and lacks for sandboxes.
///
/// ```no_run
/// use sandbar_local::{Doctor, LocalConfig};
///
/// let report = Doctor::new(&LocalConfig::new())?.examine();
/// for finding in &report.findings {
///     println!("{}: {}", finding.condition.id, finding.state.as_str());
/// }
/// # Ok::<(), sandbar_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Doctor {
    home: PathBuf,
    helper: Option<PathBuf>,
    environment: Environment,
}

impl Doctor {
    /// For the backend that `config` opens. Looks at nothing yet. An error is a configuration that names no place for data.
    pub fn new(config: &LocalConfig) -> Result<Self> {
        let environment = Environment::read();
        let home = config.resolve_home(&environment)?;
        Ok(Self { home, helper: config.helper.clone(), environment })
    }

    /// Looks at every condition, and tries what can be tried, for real: in processes and namespaces of its own, of which nothing is left.
    ///
    /// Blocks; takes well under a second, and at most some two minutes where everything hangs. What could not be looked at is
    /// [`Unknown`](super::FindingState::Unknown), which is neither a yes nor a no.
    pub fn examine(&self) -> HostReport {
        let helper = crate::helper::find(self.helper.as_deref(), &self.environment).ok();
        let look = Look {
            host: Host::observe(),
            facts: Facts::read(&self.home, helper.as_deref()),
            environment: self.environment.clone(),
            home: self.home.clone(),
            helper: self.helper.clone(),
        };
        HostReport { findings: examine::all(&look) }
    }
}
