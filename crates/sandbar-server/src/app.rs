use std::sync::Arc;

use sandbar_core::SandboxProvider;

use crate::config::ServerConfig;
use crate::limits::KeyLimits;
use crate::observe::Counts;
use crate::seal::Seal;
use crate::store::Store;

/// What every handler has.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) config: ServerConfig,
    /// The origin under which clients reach the server, without a `/` at its end.
    pub(crate) origin: String,
    pub(crate) provider: Arc<dyn SandboxProvider>,
    pub(crate) store: Store,
    pub(crate) seal: Seal,
    pub(crate) limits: KeyLimits,
    pub(crate) counts: Counts,
    pub(crate) guests: crate::guest::Guests,
    pub(crate) builtins: crate::builtin::Builtins,
    pub(crate) builds: crate::control::TemplateWork,
    pub(crate) rooms: crate::control::Rooms,
    pub(crate) admissions: crate::control::Admissions,
    pub(crate) owners: crate::known::Owners,
    /// Under which names requests for sandboxes come.
    pub(crate) names: crate::guest::Names,
    pub(crate) turns: crate::control::Turns,
    /// What goes on when the client that asked for it has left.
    pub(crate) work: tokio_util::task::TaskTracker,
}

impl App {
    /// Whether scrapes are answered beside the control plane: only where nothing but this machine reaches it. Elsewhere they have an address of their own.
    pub(crate) fn tells_counts(&self) -> bool {
        let ServerConfig { listen, domain, public_url, metrics_listen, .. } = &self.config;
        let has_own = metrics_listen.is_some();
        listen.ip().is_loopback() && domain.is_none() && public_url.is_none() && !has_own
    }

    /// The domain that answers tell of sandboxes and volumes. There is always one: without it SDKs make names below E2B's own, and what programs send there
    /// leaves this machine. Names below `localhost` lead here where whoever looks them up knows that.
    pub(crate) fn domain(&self) -> String {
        if let Some(domain) = &self.config.domain {
            return domain.clone();
        }
        let own = self.origin.split_once("://").map_or(self.origin.as_str(), |(_, own)| own);
        match own.rsplit_once(':') {
            Some((_, port)) if self.config.listen.ip().is_loopback() && self.config.public_url.is_none() => {
                format!("localhost:{port}")
            }
            _ => own.to_owned(),
        }
    }
}
