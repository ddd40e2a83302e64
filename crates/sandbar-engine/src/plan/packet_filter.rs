//! Netlink messages to nftables, from `linux/netfilter/nf_tables.h` and `linux/netfilter/nfnetlink.h`.

use crate::network::{Body, GATEWAY_ADDRESS, GATEWAY_PORT, attribute, message};

/// `NFNL_SUBSYS_NFTABLES`, in the upper byte of a type.
const NFTABLES: u16 = 10 << 8;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u16 = NFTABLES;
const NEW_CHAIN: u16 = NFTABLES | 3;
const NEW_RULE: u16 = NFTABLES | 6;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `NLM_F_ACK`.
const ACKNOWLEDGE: u16 = 4;
/// `NLM_F_CREATE`, and for rules `NLM_F_APPEND`.
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;
/// `NFPROTO_IPV4`.
const IPV4: u8 = 2;
/// `NLA_F_NESTED`.
const NESTED: u16 = 1 << 15;
/// `NF_INET_LOCAL_OUT`.
const OUTPUT_HOOK: u32 = 3;
/// `NF_IP_PRI_RAW`: before connections are tracked.
const BEFORE_TRACKING: i32 = -300;
/// `NF_IP_PRI_NAT_DST`.
const BEFORE_ROUTING: i32 = -100;
/// `NFT_REG_1` and `NFT_REG_2`.
const REGISTER: u32 = 1;
const SECOND_REGISTER: u32 = 2;
/// Where the IPv4 header has the protocol, and the first byte of source and destination.
const PROTOCOL: u32 = 9;
const SOURCE: u32 = 12;
const DESTINATION: u32 = 16;
/// Where the TCP header has the ports.
const SOURCE_PORT: u32 = 0;
const DESTINATION_PORT: u32 = 2;
/// `NFT_PAYLOAD_NETWORK_HEADER` and `NFT_PAYLOAD_TRANSPORT_HEADER`.
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
/// `NF_DROP` and `NF_ACCEPT`.
const DROP: u32 = 0;
const ACCEPT: u32 = 1;
const TCP: u8 = 6;
/// The first byte of every loopback address.
const LOOPBACK: u8 = 127;

/// New connections that a sandbox can start in a second, and at once: each is remembered by the kernel for a while, in
/// memory that no control group counts, and in a table that the machine shares. Five times what the gateway lets through;
/// the packet of one too many is lost, and sent again a second later.
const CONNECTIONS_PER_SECOND: u64 = 1_000;
const CONNECTIONS_AT_ONCE: u32 = 2_000;

const TABLE: &[u8] = b"sandbar\0";
const UNTRACKED: &[u8] = b"untracked\0";
const TO_GATEWAY: &[u8] = b"gateway\0";

/// How a value is compared.
#[derive(Clone, Copy)]
enum Is {
    Equal,
    Unequal,
}

/// A batch that leads every TCP connection to the gateway, but those within loopback and those to the gateway itself.
/// What has no route never gets so far.
///
/// Only connections to the gateway's listener are tracked, and every one that is tracked counts. What else goes on inside
/// can have any local address on either side, so it is told from them by the gateway's address and port: replies come from
/// there, and there goes what is neither for loopback nor for another port of that address.
pub(super) fn to_gateway() -> Vec<u8> {
    let not_tcp = [byte_is(PROTOCOL, Is::Unequal, TCP), untracked()].concat();
    let reply = [gateway(SOURCE, Is::Equal), port(SOURCE_PORT, Is::Equal), verdict(ACCEPT)].concat();
    let within = [byte_is(DESTINATION, Is::Equal, LOOPBACK), untracked()].concat();
    let beside = [gateway(DESTINATION, Is::Equal), port(DESTINATION_PORT, Is::Unequal), untracked()].concat();
    let too_many = [over_limit(), verdict(DROP)].concat();
    let led = [
        byte_is(PROTOCOL, Is::Equal, TCP),
        byte_is(DESTINATION, Is::Unequal, LOOPBACK),
        gateway(DESTINATION, Is::Unequal),
        translated(),
    ]
    .concat();
    [
        nft(BATCH_BEGIN, REQUEST, (0, NFTABLES >> 8), &[]),
        nft(NEW_TABLE, REQUEST | CREATE, (IPV4, 0), &attribute(1, TABLE)),
        chain(UNTRACKED, BEFORE_TRACKING, b"filter\0"),
        rule(UNTRACKED, 0, &not_tcp),
        rule(UNTRACKED, 0, &reply),
        rule(UNTRACKED, 0, &within),
        rule(UNTRACKED, 0, &beside),
        // Sees the first packet of each connection that is tracked.
        chain(TO_GATEWAY, BEFORE_ROUTING, b"nat\0"),
        rule(TO_GATEWAY, 0, &too_many),
        // The kernel takes a batch as a whole, and reports each fault of it: one word that it is done is enough.
        rule(TO_GATEWAY, ACKNOWLEDGE, &led),
        nft(BATCH_END, REQUEST, (0, NFTABLES >> 8), &[]),
    ]
    .concat()
}

fn chain(name: &[u8], priority: i32, kind: &[u8]) -> Vec<u8> {
    let hook = [attribute(1, &OUTPUT_HOOK.to_be_bytes()), attribute(2, &priority.to_be_bytes())].concat();
    let attributes =
        [attribute(1, TABLE), attribute(3, name), attribute(4 | NESTED, &hook), attribute(7, kind)].concat();
    nft(NEW_CHAIN, REQUEST | CREATE, (IPV4, 0), &attributes)
}

fn rule(chain: &[u8], flags: u16, expressions: &[u8]) -> Vec<u8> {
    let attributes = [attribute(1, TABLE), attribute(2, chain), attribute(4 | NESTED, expressions)].concat();
    nft(NEW_RULE, REQUEST | CREATE | APPEND | flags, (IPV4, 0), &attributes)
}

/// Family, version, resource.
fn nft(kind: u16, flags: u16, (family, resource): (u8, u16), attributes: &[u8]) -> Vec<u8> {
    let [high, low] = resource.to_be_bytes();
    message(kind, flags, 0, &Body { head: &[family, 0, high, low], attributes })
}

fn expression(name: &str, data: &[u8]) -> Vec<u8> {
    let mut inner = attribute(1, &[name.as_bytes(), b"\0"].concat());
    if !data.is_empty() {
        inner.extend(attribute(2 | NESTED, data));
    }
    attribute(1 | NESTED, &inner)
}

fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

/// Bytes of a header into the register.
fn load(header: u32, offset: u32, length: u32) -> Vec<u8> {
    let data = [number(1, REGISTER), number(2, header), number(3, offset), number(4, length)];
    expression("payload", &data.concat())
}

fn compare(how: Is, value: &[u8]) -> Vec<u8> {
    let operator = match how {
        Is::Equal => 0,
        Is::Unequal => 1,
    };
    let value = attribute(3 | NESTED, &attribute(1, value));
    expression("cmp", &[number(1, REGISTER), number(2, operator), value].concat())
}

fn byte_is(offset: u32, how: Is, value: u8) -> Vec<u8> {
    [load(NETWORK_HEADER, offset, 1), compare(how, &[value])].concat()
}

fn gateway(offset: u32, how: Is) -> Vec<u8> {
    [load(NETWORK_HEADER, offset, 4), compare(how, &GATEWAY_ADDRESS.octets())].concat()
}

fn port(offset: u32, how: Is) -> Vec<u8> {
    [load(TRANSPORT_HEADER, offset, 2), compare(how, &GATEWAY_PORT.to_be_bytes())].concat()
}

fn untracked() -> Vec<u8> {
    expression("notrack", &[])
}

fn over_limit() -> Vec<u8> {
    const ONE_SECOND: u64 = 1;
    const PACKETS: u32 = 0;
    /// `NFT_LIMIT_F_INV`: true once there are too many.
    const OVER: u32 = 1;
    let data = [
        attribute(1, &CONNECTIONS_PER_SECOND.to_be_bytes()),
        attribute(2, &ONE_SECOND.to_be_bytes()),
        number(3, CONNECTIONS_AT_ONCE),
        number(4, PACKETS),
        number(5, OVER),
    ];
    expression("limit", &data.concat())
}

fn verdict(code: u32) -> Vec<u8> {
    /// `NFT_REG_VERDICT`.
    const VERDICT: u32 = 0;
    let data = attribute(2 | NESTED, &attribute(2 | NESTED, &number(1, code)));
    expression("immediate", &[number(1, VERDICT), data].concat())
}

/// To the gateway's own address and port.
fn translated() -> Vec<u8> {
    /// `NFT_NAT_DNAT`.
    const DESTINATION_NAT: u32 = 1;
    let set = |register, value: &[u8]| {
        let data = [number(1, register), attribute(2 | NESTED, &attribute(1, value))];
        expression("immediate", &data.concat())
    };
    let data = [
        number(1, DESTINATION_NAT),
        number(2, u32::from(IPV4)),
        number(3, REGISTER),
        number(5, SECOND_REGISTER),
    ];
    [
        set(REGISTER, &GATEWAY_ADDRESS.octets()),
        set(SECOND_REGISTER, &GATEWAY_PORT.to_be_bytes()),
        expression("nat", &data.concat()),
    ]
    .concat()
}
