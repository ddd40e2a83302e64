use std::net::Ipv4Addr;

/// Where the gateway is seen from inside: its listener, and the resolver.
pub const GATEWAY_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The gateway's listener. A program inside can't listen there on all addresses at once; on `127.0.0.1` it can.
pub const GATEWAY_PORT: u16 = 15_001;
/// The resolver, over UDP and TCP.
pub const DNS_PORT: u16 = 53;
/// The addresses that stand for names: RFC 2544's, which nobody routes.
pub const SYNTHETIC_NETWORK: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
/// How many leading bits of [`SYNTHETIC_NETWORK`] count.
pub const SYNTHETIC_BITS: u8 = 15;
/// UDP sockets that are made in the namespace beforehand, one for each port that the rules of one policy name: a socket
/// keeps the namespace that it was made in, and nobody outside can make one there later.
pub const UDP_SOCKETS: usize = 16;
