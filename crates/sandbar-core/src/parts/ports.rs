use async_trait::async_trait;

use crate::{GuestStream, PortMapping, PortPublication, Result};

/// Ports inside, from outside.
#[async_trait]
pub trait Ports: Send + Sync {
    /// Opens a connection to `port` on the sandbox's `localhost`. `Conflict`-free: nothing listening is `Unavailable` with `Retry::Safe`.
    async fn dial(&self, port: u16) -> Result<GuestStream>;

    /// Makes `port` reachable at an address of its own until the sandbox ends. Doing it again answers the same mapping.
    async fn publish(&self, port: u16) -> Result<PortMapping> {
        self.publish_at(PortPublication::new(port)).await
    }

    /// Makes a port reachable where it says until the sandbox ends or it is taken back.
    ///
    /// - A port that is published at a place that fits already answers that mapping.
    /// - One that is published elsewhere is `AlreadyExists`, and stays where it is.
    /// - A place that somebody else has is `AlreadyExists` too; one that the host does not have is `InvalidInput`, one that it does not give
    ///   this user `PermissionDenied`. The resource is then the address, and nothing was changed.
    /// - A backend that can't choose refuses a chosen address or port as `Unsupported`.
    async fn publish_at(&self, port: PortPublication) -> Result<PortMapping>;

    /// Takes back what was published: nothing is taken at its address any more, and its connections end. `false` means that it was not published.
    async fn unpublish(&self, port: u16) -> Result<bool>;

    /// The ports published now.
    async fn published(&self) -> Result<Vec<PortMapping>>;
}
