use serde::Serialize;

use crate::{Sandbox, SandboxProvider};

/// What a backend has and lacks, computed from its accessors.
#[derive(Clone, Debug, Serialize)]
pub struct Capabilities {
    /// One entry a part.
    pub parts: Vec<Capability>,
}

/// One part.
#[derive(Clone, Debug, Serialize)]
pub struct Capability {
    /// The accessor's name.
    pub part: &'static str,
    /// Whether it is there.
    pub available: bool,
    /// Why not.
    pub reason: Option<String>,
}

impl Capabilities {
    /// The parts of a provider.
    pub fn of_provider(provider: &dyn SandboxProvider) -> Self {
        let entry = |part, available| Capability {
            part,
            available,
            reason: if available { None } else { Some(reason(provider.missing_reason(part))) },
        };
        Self {
            parts: vec![
                entry("templates", provider.templates().is_some()),
                entry("builds", provider.builds().is_some()),
                entry("volumes", provider.volumes().is_some()),
                entry("egress", provider.egress().is_some()),
                entry("capacity", provider.capacity().is_some()),
                entry("usage", provider.usage().is_some()),
            ],
        }
    }

    /// The parts of a sandbox.
    pub fn of_sandbox(sandbox: &dyn Sandbox) -> Self {
        let entry = |part, available| Capability {
            part,
            available,
            reason: if available { None } else { Some(reason(sandbox.missing_reason(part))) },
        };
        Self {
            parts: vec![
                entry("processes", sandbox.processes().is_some()),
                entry("watching", sandbox.watching().is_some()),
                entry("ports", sandbox.ports().is_some()),
                entry("metrics", sandbox.metrics().is_some()),
                entry("pausing", sandbox.pausing().is_some()),
                entry("forking", sandbox.forking().is_some()),
                entry("archive", sandbox.archive().is_some()),
                entry("resources", sandbox.resources().is_some()),
                entry("main_command", sandbox.main_command().is_some()),
                entry("network", sandbox.network().is_some()),
                entry("guest", sandbox.guest().is_some()),
            ],
        }
    }

    /// The entry for `part`.
    pub fn get(&self, part: &str) -> Option<&Capability> {
        self.parts.iter().find(|entry| entry.part == part)
    }
}

fn reason(given: Option<String>) -> String {
    given.unwrap_or_else(|| "this backend has no such part".into())
}
