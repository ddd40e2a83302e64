//! Speaking to the packet filter and to routing. Allocation-free, see [`super::child`].

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// An answer is a few dozen bytes; the kernel repeats the request's head in it.
const ANSWER: usize = 1024;
/// `NLMSG_ERROR`, which is also how a message is acknowledged.
const ERROR: u16 = 2;
/// Length, type, flags, sequence, port; then the error number.
const HEAD: usize = 16;
/// More answers than a batch of ours has messages.
const MAX_ANSWERS: usize = 16;

/// Sends a batch and reads what the kernel answers, which it does before the send returns. The first refusal counts.
/// No protocol is routing's, whose number is 0.
pub(super) fn batch(protocol: Option<Protocol>, bytes: &[u8]) -> Result<(), Errno> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    send(&socket, bytes, SendFlags::empty())?;
    let mut acknowledged = false;
    for _ in 0..MAX_ANSWERS {
        let mut answer = [0; ANSWER];
        let length = match recv(&socket, &mut answer[..], RecvFlags::DONTWAIT) {
            Ok((_, length)) => length.min(ANSWER),
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR) => continue,
            Err(cause) => return Err(cause),
        };
        if length < HEAD + 4 {
            return Err(Errno::PROTO);
        }
        if u16::from_ne_bytes([answer[4], answer[5]]) != ERROR {
            continue;
        }
        let number = i32::from_ne_bytes([answer[HEAD], answer[HEAD + 1], answer[HEAD + 2], answer[HEAD + 3]]);
        if number != 0 {
            return Err(Errno::from_raw_os_error(-number));
        }
        acknowledged = true;
    }
    // Silence is no success.
    if acknowledged { Ok(()) } else { Err(Errno::PROTO) }
}
