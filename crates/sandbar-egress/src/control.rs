use std::net::Ipv4Addr;

use sandbar_core::Hostname;

/// The name that the gateway itself serves under every policy, so that it can be told whether a sandbox has its gateway at all.
pub const CONTROL_NAME: &str = "control.sandbar.internal";
/// Its address.
pub const CONTROL_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// Its port: plain HTTP.
pub(crate) const CONTROL_PORT: u16 = 80;
/// What it answers, to any request.
pub const CONTROL_BODY: &str = "sandbar\n";

pub(crate) fn is_control(name: &Hostname) -> bool {
    name.as_str() == CONTROL_NAME
}

/// The gateway's own address in a sandbox: its resolver is there, and what is connected to comes there.
pub const GATEWAY_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
