use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::Errno;

/// `AF_INET`, in the width that the address has.
const INET: libc::sa_family_t = 2;

/// Room for the control messages that such a socket can give at once, aligned as they must be.
#[repr(C, align(8))]
struct Control([u8; 256]);

/// Makes a UDP socket tell where each datagram was sent to. Allocation-free.
pub(crate) fn tell_destinations(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let yes: libc::c_int = 1;
    // SAFETY: the option reads one `int`, whose size is what is given.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_PKTINFO,
            (&raw const yes).cast(),
            length_of::<libc::c_int>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(last()) }
}

/// Receives one datagram without waiting: its whole length, its source, and its destination where the kernel told it.
pub(crate) fn receive_datagram(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> Result<(usize, Option<SocketAddrV4>, Option<Ipv4Addr>), Errno> {
    let mut control = MaybeUninit::<Control>::uninit();
    let mut name = MaybeUninit::<libc::sockaddr_in>::zeroed();
    let mut io = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all zeroes is a valid `msghdr`.
    let mut head: libc::msghdr = unsafe { std::mem::zeroed() };
    head.msg_name = name.as_mut_ptr().cast();
    head.msg_namelen = length_of::<libc::sockaddr_in>();
    head.msg_iov = &raw mut io;
    head.msg_iovlen = 1;
    head.msg_control = control.as_mut_ptr().cast();
    head.msg_controllen = size_of::<Control>() as _;
    // SAFETY: every pointer in `head` is to a live local or the caller's buffer, with its size beside it.
    let got =
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut head, libc::MSG_DONTWAIT | libc::MSG_TRUNC) };
    let length = usize::try_from(got).map_err(|_| last())?;
    let from = (head.msg_namelen >= length_of::<libc::sockaddr_in>()).then(|| {
        // SAFETY: it was zeroed, so it is initialised whatever the kernel wrote.
        let name = unsafe { name.assume_init() };
        SocketAddrV4::new(Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes()), u16::from_be(name.sin_port))
    });
    // SAFETY: `head` is as the kernel left it, so its control messages lie within `control`.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(&raw const head) };
    let mut to = None;
    while !message.is_null() {
        // SAFETY: not null, so it is a whole header within `control`.
        let at = unsafe { &*message };
        let whole = at.cmsg_len as usize >= size_of::<libc::cmsghdr>() + size_of::<libc::in_pktinfo>();
        if (at.cmsg_level, at.cmsg_type) == (libc::IPPROTO_IP, libc::IP_PKTINFO) && whole {
            // SAFETY: the message is long enough to hold one, and it is read without asking for alignment.
            let info = unsafe { libc::CMSG_DATA(message).cast::<libc::in_pktinfo>().read_unaligned() };
            to = Some(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes()));
        }
        // SAFETY: as for the first one.
        message = unsafe { libc::CMSG_NXTHDR(&raw const head, message) };
    }
    Ok((length, from, to))
}

/// Sends one datagram without waiting, with this source address.
pub(crate) fn send_datagram(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    to: SocketAddrV4,
    from: Ipv4Addr,
) -> Result<usize, Errno> {
    let mut control = Control([0; 256]);
    // SAFETY: all zeroes is a valid `sockaddr_in`, and a valid `msghdr`.
    let (mut name, mut head): (libc::sockaddr_in, libc::msghdr) = unsafe { std::mem::zeroed() };
    name.sin_family = INET;
    name.sin_port = to.port().to_be();
    name.sin_addr.s_addr = u32::from_ne_bytes(to.ip().octets());
    let mut io = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    head.msg_name = (&raw mut name).cast();
    head.msg_namelen = length_of::<libc::sockaddr_in>();
    head.msg_iov = &raw mut io;
    head.msg_iovlen = 1;
    head.msg_control = (&raw mut control).cast();
    let info = libc::in_pktinfo {
        ipi_ifindex: 0,
        ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(from.octets()) },
        ipi_addr: libc::in_addr { s_addr: 0 },
    };
    let size = length_of::<libc::in_pktinfo>();
    // SAFETY: arithmetic only.
    head.msg_controllen = unsafe { libc::CMSG_SPACE(size) } as _;
    // SAFETY: `control` has room for one header and what it announces, and is aligned for a header; the data is written
    // without asking for alignment.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(&raw const head);
        (*message).cmsg_level = libc::IPPROTO_IP;
        (*message).cmsg_type = libc::IP_PKTINFO;
        (*message).cmsg_len = libc::CMSG_LEN(size) as _;
        libc::CMSG_DATA(message).cast::<libc::in_pktinfo>().write_unaligned(info);
    }
    // SAFETY: every pointer in `head` is to a live local or the caller's bytes, which the kernel only reads.
    let sent = unsafe {
        libc::sendmsg(socket.as_raw_fd(), &raw const head, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    };
    usize::try_from(sent).map_err(|_| last())
}

#[expect(clippy::cast_possible_truncation, reason = "the sizes of small structs")]
const fn length_of<T>() -> u32 {
    size_of::<T>() as u32
}

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
