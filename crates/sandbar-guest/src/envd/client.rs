use std::sync::Arc;

use crate::client::{Dialect, GuestClient};
use crate::transport::Transport;

use super::EnvdVersion;

/// A client of one sandbox' `envd`. Cheap to clone: handles outlive the call that made them.
#[derive(Clone, Debug)]
pub struct EnvdClient {
    pub(super) guest: GuestClient,
}

impl EnvdClient {
    /// A client over `transport`. Which version the agent is of is asked of the transport, when it matters.
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        Self { guest: GuestClient { transport, dialect: Dialect::Envd } }
    }

    /// What the agent can do.
    pub(super) async fn version(&self, operation: &'static str) -> sandbar_core::Result<EnvdVersion> {
        self.guest.transport.envd_version(operation).await
    }
}
