//! Which addresses a program inside can connect to at all. From `linux/rtnetlink.h`.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::message::{Body, attribute, message};

const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
/// `NLM_F_REQUEST | NLM_F_ACK`.
const REQUEST: u16 = 1 | 4;
/// `NLM_F_CREATE | NLM_F_EXCL`.
const CREATE: u16 = 0x400 | 0x200;
/// `NLMSG_ERROR`, which is also how a message is acknowledged.
const ERROR: u16 = 2;
/// `AF_INET`, `RT_TABLE_LOCAL`, `RTPROT_STATIC`, `RT_SCOPE_HOST`, `RTN_LOCAL`.
const INET: u8 = 2;
const LOCAL_TABLE: u8 = 255;
const STATIC: u8 = 4;
const HOST_SCOPE: u8 = 254;
const LOCAL: u8 = 2;
const DESTINATION: u16 = 1;
const OUTPUT_INTERFACE: u16 = 4;
/// The loopback interface has this number in every namespace.
const LOOPBACK: u32 = 1;

/// Messages that are read for one answer; the kernel sends one. Whoever is inside may have asked through the same socket.
const MAX_ANSWERS: usize = 64;
/// Bytes of an answer that are looked at; it repeats the request.
const ANSWER: usize = 1024;
/// Error numbers as the kernel answers with them (`MAX_ERRNO`), and 0.
const NUMBERS: std::ops::RangeInclusive<i32> = -4095..=0;
/// Length, type, flags, sequence, port.
const HEAD: usize = 16;

/// A route that was not changed.
#[derive(Debug)]
pub struct RouteError {
    operation: &'static str,
    network: Ipv4Addr,
    bits: u8,
    cause: io::Error,
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, network, bits, cause } = self;
        write!(f, "{operation} the route `{network}/{bits}` of the sandbox: {cause}")
    }
}

impl std::error::Error for RouteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// Lets programs inside connect to the `bits`-long network, which leads to the gateway. One that is there already is fine.
/// `routes` is [`NetworkSockets::routes`](super::NetworkSockets::routes); the caller is who launched the sandbox, or root.
///
/// The socket is shared with the sandbox, where nobody has the right to change a route by it; an answer can be taken away
/// there, and then this is an error whatever became of the route.
pub fn add_route(routes: impl AsFd, network: Ipv4Addr, bits: u8) -> Result<(), RouteError> {
    change(routes, NEW_ROUTE, CREATE, (network, bits), Errno::EXIST).map_err(|cause| RouteError {
        operation: "add",
        network,
        bits,
        cause,
    })
}

/// Takes back what [`add_route`] did; from then on a connect is refused as unreachable. One that is not there is fine.
/// What is connected stays so.
pub fn remove_route(routes: impl AsFd, network: Ipv4Addr, bits: u8) -> Result<(), RouteError> {
    change(routes, DELETE_ROUTE, 0, (network, bits), Errno::SRCH).map_err(|cause| RouteError {
        operation: "remove",
        network,
        bits,
        cause,
    })
}

/// The message that routes a network to the loopback interface, for the launch.
pub(crate) fn to_gateway(network: Ipv4Addr, bits: u8) -> Vec<u8> {
    route(NEW_ROUTE, CREATE, 1, network, bits)
}

fn route(kind: u16, flags: u16, sequence: u32, network: Ipv4Addr, bits: u8) -> Vec<u8> {
    let head = [INET, bits, 0, 0, LOCAL_TABLE, STATIC, HOST_SCOPE, LOCAL, 0, 0, 0, 0];
    let attributes =
        [attribute(DESTINATION, &network.octets()), attribute(OUTPUT_INTERFACE, &LOOPBACK.to_ne_bytes())]
            .concat();
    message(kind, REQUEST | flags, sequence, &Body { head: &head, attributes: &attributes })
}

fn change(
    routes: impl AsFd,
    kind: u16,
    flags: u16,
    (network, bits): (Ipv4Addr, u8),
    fine: Errno,
) -> io::Result<()> {
    static SEQUENCE: AtomicU32 = AtomicU32::new(2);
    if bits > 32 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "an IPv4 network has at most 32 bits"));
    }
    let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
    let bytes = route(kind, flags, sequence, network, bits);
    send(&routes, &bytes, SendFlags::DONTWAIT)?;
    // The kernel answers before the send returns.
    for _ in 0..MAX_ANSWERS {
        let mut answer = [0; ANSWER];
        let length = match recv(&routes, &mut answer[..], RecvFlags::DONTWAIT) {
            Ok((_, length)) => length.min(ANSWER),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => break,
            Err(cause) => return Err(cause.into()),
        };
        if let Some(number) = answered(answer.get(..length).unwrap_or_default(), sequence) {
            let fine = number == 0 || number == -fine.raw_os_error();
            return if fine { Ok(()) } else { Err(io::Error::from_raw_os_error(-number)) };
        }
    }
    Err(io::Error::other("the kernel's answer did not come"))
}

/// The error number in the answer to this message.
fn answered(answer: &[u8], sequence: u32) -> Option<i32> {
    let word = |at: usize| -> Option<[u8; 4]> { answer.get(at..at + 4)?.try_into().ok() };
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let of_this = kind == ERROR && u32::from_ne_bytes(word(8)?) == sequence;
    of_this.then(|| word(HEAD).map(i32::from_ne_bytes)).flatten().filter(|number| NUMBERS.contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_to_this_very_message_counts() {
        let mut answer = vec![0; 36];
        answer[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        answer[8..12].copy_from_slice(&7_u32.to_ne_bytes());
        answer[16..20].copy_from_slice(&(-1_i32).to_ne_bytes());
        assert_eq!(answered(&answer, 7), Some(-1));
        assert_eq!(answered(&answer, 8), None);
        assert_eq!(answered(&answer[..18], 7), None);
        answer[4] = 3;
        assert_eq!(answered(&answer, 7), None);
    }

    #[test]
    fn a_network_of_more_bits_than_there_are_is_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = add_route(&file, Ipv4Addr::new(10, 0, 0, 0), 33).unwrap_err();
        assert!(error.to_string().contains("`10.0.0.0/33`"), "{error}");
    }
}
