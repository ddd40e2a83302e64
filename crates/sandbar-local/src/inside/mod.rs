//! What comes from inside a sandbox over a socket, and the sockets themselves. All of it is shared with somebody hostile.
//!
//! A descriptor can make whoever closes it wait: the last close of a TCP connection with `SO_LINGER` lasts as long as the other side likes, and a
//! descriptor that the kernel drops because there was no room for it, or because its message was never read, is closed by the reader's own thread.
//! So every message is read with room for the most that it can carry, nothing is left in a queue, and what is not kept is closed aside. Flags such
//! as `O_NONBLOCK` are shared, too, so each call says for itself that it must not wait.

mod aside;
mod packets;
mod received;
mod tcp;
mod unix;

/// Most bytes that one read asks for: what is read into has to be cleared first, and a socket holds about this much.
const AT_ONCE: usize = 128 << 10;

pub(crate) use packets::Packets;
pub(crate) use received::{MAX_DESCRIPTORS, Received, receive};
pub(crate) use tcp::Tcp;
pub(crate) use unix::{Late, Unix};
