//! Datagrams of the sandbox: a socket for each port that a rule names, and a flow for each pair of addresses.

mod flow;
mod packet;
mod ports;
mod receive;
#[cfg(test)]
mod tests;

pub(crate) use ports::{Lacking, UdpPorts};
