use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;

use rustix::net::sockopt::set_socket_linger;
use tokio::sync::OwnedSemaphorePermit;

/// Stack of a thread that does nothing but close, in bytes.
const STACK: usize = 64 << 10;

/// Makes closing a socket a matter of no time, as far as it is still ours to say: its twin may be changed again inside.
pub(super) fn unlinger(descriptor: &OwnedFd) {
    // Of what is no socket there is nothing to change.
    let _ = set_socket_linger(descriptor, None);
}

/// Closes descriptors that came from inside where nobody waits for it, and gives their place back after that. Where there is no thread to be had
/// they stay open: better a descriptor lost than the caller.
pub(super) fn close(descriptors: Vec<OwnedFd>, place: Option<OwnedSemaphorePermit>) {
    if descriptors.is_empty() {
        return;
    }
    descriptors.iter().for_each(unlinger);
    let held = ManuallyDrop::new((descriptors, place));
    let closing = move || drop(ManuallyDrop::into_inner(held));
    let _ = std::thread::Builder::new().name("close".into()).stack_size(STACK).spawn(closing);
}
