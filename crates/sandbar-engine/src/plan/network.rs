use super::build::Building;
use super::packet_filter;
use super::step::Step;
use crate::network::{GATEWAY_ADDRESS, SYNTHETIC_BITS, SYNTHETIC_NETWORK, route_message};
use crate::spec::Network;

/// How long the kernel remembers a connection that begins or ends, in seconds. Nothing is delayed on loopback, and a first
/// packet that the gateway had no room for is sent again as a new one; so what it would otherwise remember for two minutes
/// is memory lost, which no control group counts. Other states last as long as ever: each has a socket of the gateway's
/// on the other side, and of those there are few. A packet that begins nothing is not remembered at all.
const REMEMBERED: [(&str, &str); 6] = [
    ("nf_conntrack_tcp_loose", "0"),
    ("nf_conntrack_tcp_timeout_syn_sent", "5"),
    ("nf_conntrack_tcp_timeout_syn_recv", "5"),
    ("nf_conntrack_tcp_timeout_time_wait", "2"),
    ("nf_conntrack_tcp_timeout_close", "2"),
    ("nf_conntrack_tcp_timeout_last_ack", "5"),
];

/// What goes on with the loopback interface up and before the ids are there: it waits for nothing, and the parent is busy
/// with the id maps meanwhile.
pub(super) fn add(network: Network, out: &mut Building<'_>) {
    match network {
        Network::Loopback => {}
        Network::Gateway => {
            out.push(Step::Route(route_message(SYNTHETIC_NETWORK, SYNTHETIC_BITS)));
            out.push(Step::PacketFilter(packet_filter::to_gateway()));
            out.push(Step::NetworkSockets);
        }
    }
}

/// Paths below `/proc/sys/net/netfilter` and what is written there.
pub(super) fn settings(network: Network) -> &'static [(&'static str, &'static str)] {
    match network {
        Network::Loopback => &[],
        Network::Gateway => &REMEMBERED,
    }
}

/// Who answers for names, where somebody does.
pub(super) fn resolver(network: Network) -> Option<String> {
    match network {
        Network::Loopback => None,
        Network::Gateway => Some(format!("nameserver {GATEWAY_ADDRESS}\n")),
    }
}
