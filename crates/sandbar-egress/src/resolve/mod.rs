//! Names as the outside knows them.

mod cache;
mod nameservers;
#[cfg(test)]
mod tests;
mod upstream;

use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use sandbar_core::Hostname;

pub(crate) use cache::Cached;
pub(crate) use upstream::Upstream;

/// Where a name leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Its addresses, of version 4 first.
    pub(crate) addresses: Vec<IpAddr>,
    /// How long that holds.
    pub(crate) ttl: Duration,
}

/// Finds where a name leads. The error is why that can't be known, as a cause for a sentence.
#[async_trait]
pub(crate) trait Resolve: Send + Sync {
    async fn resolve(&self, name: &Hostname) -> Result<Answer, String>;
}
