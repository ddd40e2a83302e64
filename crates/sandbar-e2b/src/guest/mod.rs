//! The sandbox' own agent: commands, files, processes, watches and trees, by the client of the guest protocol over HTTPS.

mod refusal;
mod transport;

use std::sync::Arc;

use sandbar_guest::EnvdClient;

use crate::access::Access;
use transport::Https;

/// The parts of a sandbox that its agent serves. Cheap to clone.
pub(crate) type Guest = EnvdClient;

/// That of a sandbox. Nothing is sent before the first call.
pub(crate) fn of(access: Access) -> Guest {
    EnvdClient::new(Arc::new(Https::new(access)))
}
