use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sandbar_core::Cidr;

mod own;
#[cfg(test)]
mod tests;

pub(crate) use own::is_own;

/// What an address is, to a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressClass {
    /// On the public network.
    Public,
    /// In this private block: meant by a range within the block, and by nothing else.
    Private(Cidr),
    /// Meant by nothing: loopback, link-local, metadata, multicast, reserved, or a version 4 address in a version 6 one.
    Forbidden,
}

/// Addresses at which clouds tell machines secrets, outside of the link-local block: Alibaba, Azure, AWS, Google, Scaleway.
const METADATA_V4: &[Ipv4Addr] = &[Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16)];
const METADATA_V6: &[Ipv6Addr] = &[
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
];

/// Private blocks (RFC 1918, RFC 6598).
const PRIVATE_V4: &[([u8; 4], u8)] =
    &[([10, 0, 0, 0], 8), ([172, 16, 0, 0], 12), ([192, 168, 0, 0], 16), ([100, 64, 0, 0], 10)];

/// What the registry of special-purpose addresses (RFC 6890 and its successors) says is not global, and what is multicast or reserved.
const FORBIDDEN_V4: &[([u8; 4], u8)] = &[
    // "This network".
    ([0, 0, 0, 0], 8),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    // Protocol assignments; one cloud's metadata service has an address there.
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    // Relays to version 6, deprecated.
    ([192, 88, 99, 0], 24),
    // Benchmarking: where the synthetic addresses are.
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];

/// What global unicast (`2000::/3`, all that is public) has that is not global, or stands for an address of version 4.
const FORBIDDEN_V6: &[([u16; 2], u8)] = &[
    // Protocol assignments, with Teredo.
    ([0x2001, 0], 23),
    ([0x2001, 0xdb8], 32),
    // 6to4.
    ([0x2002, 0], 16),
    ([0x3fff, 0], 20),
];

/// What `address` is. One of version 4 in version 6 is forbidden, whatever it stands for.
pub fn classify(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(address) => classify_v4(address),
        IpAddr::V6(address) => classify_v6(address),
    }
}

fn classify_v4(address: Ipv4Addr) -> AddressClass {
    let is_in = |(network, bits): &([u8; 4], u8)| {
        (u32::from(address) ^ u32::from_be_bytes(*network)) >> (32 - u32::from(*bits)) == 0
    };
    if METADATA_V4.contains(&address) || FORBIDDEN_V4.iter().any(is_in) {
        return AddressClass::Forbidden;
    }
    match PRIVATE_V4.iter().find(|block| is_in(block)) {
        Some((network, bits)) => private(&format!("{}/{bits}", Ipv4Addr::from(*network))),
        None => AddressClass::Public,
    }
}

fn classify_v6(address: Ipv6Addr) -> AddressClass {
    let segments = address.segments();
    if METADATA_V6.contains(&address) {
        return AddressClass::Forbidden;
    }
    if segments[0] & 0xfe00 == 0xfc00 {
        return private("fc00::/7");
    }
    let high = u32::from(segments[0]) << 16 | u32::from(segments[1]);
    let is_in = |([first, second], bits): &([u16; 2], u8)| {
        let network = u32::from(*first) << 16 | u32::from(*second);
        (high ^ network) >> (32 - u32::from(*bits)) == 0
    };
    if segments[0] & 0xe000 != 0x2000 || FORBIDDEN_V6.iter().any(is_in) {
        return AddressClass::Forbidden;
    }
    AddressClass::Public
}

/// Forbidden if the block can't be read, which the tests show to be none.
fn private(block: &str) -> AddressClass {
    Cidr::parse(block).map_or(AddressClass::Forbidden, AddressClass::Private)
}
