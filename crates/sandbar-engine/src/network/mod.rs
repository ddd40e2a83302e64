//! The sandbox's side of its network: what the launch makes in the namespace, and what is done with it from outside.

mod address;
mod datagram;
mod message;
mod route;
mod sockets;

pub use address::{DNS_PORT, GATEWAY_ADDRESS, GATEWAY_PORT, SYNTHETIC_BITS, SYNTHETIC_NETWORK, UDP_SOCKETS};
pub use datagram::{Datagram, receive, reply};
pub(crate) use message::{Body, attribute, message};
pub(crate) use route::to_gateway as route_message;
pub use route::{RouteError, add_route, remove_route};
pub use sockets::{NetworkSockets, SOCKETS};
