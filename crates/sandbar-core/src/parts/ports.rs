use async_trait::async_trait;

use crate::{GuestStream, PortMapping, Result};

/// Ports inside, from outside.
#[async_trait]
pub trait Ports: Send + Sync {
    /// Opens a connection to `port` on the sandbox's `localhost`. `Conflict`-free: nothing listening is `Unavailable` with `Retry::Safe`.
    async fn dial(&self, port: u16) -> Result<GuestStream>;

    /// Makes `port` reachable at an address of its own until the sandbox ends. Doing it again answers the same mapping.
    async fn publish(&self, port: u16) -> Result<PortMapping>;

    /// The ports published now.
    async fn published(&self) -> Result<Vec<PortMapping>>;
}
