use std::io;
use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;

/// Lets the runtime wait for a descriptor that does not block.
///
/// The type is fixed on purpose. The runtime's constructor is deprecated because a type of the caller's own may answer with another descriptor
/// than the one it owns, or close it early; an `OwnedFd` does neither. Its successor is an unsafe function, and this crate has no unsafe code.
#[expect(deprecated, reason = "sound for an `OwnedFd`, see above")]
pub(crate) fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(descriptor)
}
