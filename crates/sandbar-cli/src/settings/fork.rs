use sandbar::{EgressPolicy, ForkVolumes, SandboxName};

use crate::args::{ForkArgs, VolumesArg};
use crate::failure::Result;
use crate::settings::policy;

/// `fork`.
#[derive(Debug)]
pub(crate) struct ForkSettings {
    pub(crate) id: String,
    pub(crate) name: Option<SandboxName>,
    /// The policy of the copy; its parent's if absent.
    pub(crate) egress: Option<EgressPolicy>,
    pub(crate) volumes: ForkVolumes,
}

impl ForkSettings {
    pub(crate) fn resolve(args: ForkArgs) -> Result<Self> {
        let ForkArgs { id, name, volumes, policy } = args;
        let volumes = match volumes {
            Some(VolumesArg::ReadOnly) => ForkVolumes::ShareReadOnly,
            None => ForkVolumes::Refuse,
        };
        Ok(Self { id, name, egress: policy::resolve(policy)?, volumes })
    }
}
