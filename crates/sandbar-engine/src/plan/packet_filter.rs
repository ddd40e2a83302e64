//! Netlink messages to nftables, from `linux/netfilter/nf_tables.h` and `linux/netfilter/nfnetlink.h`.

/// `NFNL_SUBSYS_NFTABLES`, in the upper byte of a type.
const NFTABLES: u16 = 10 << 8;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u16 = NFTABLES;
const NEW_CHAIN: u16 = NFTABLES | 3;
const NEW_RULE: u16 = NFTABLES | 6;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE`.
const CREATE: u16 = 1 | 4 | 0x400;
/// `NFPROTO_IPV4`.
const IPV4: u8 = 2;
/// `NLA_F_NESTED`.
const NESTED: u16 = 1 << 15;
/// `NF_INET_LOCAL_OUT`.
const OUTPUT_HOOK: u32 = 3;
/// `NF_IP_PRI_NAT_DST`.
const BEFORE_ROUTING: i32 = -100;

const NAME: &[u8] = b"sandbar-probe\0";

/// A batch that makes a table, a `nat` chain on the output hook, and a rule in it that redirects.
pub(super) fn redirection() -> Vec<u8> {
    let mut hook = attribute(1, &OUTPUT_HOOK.to_be_bytes());
    hook.extend(attribute(2, &BEFORE_ROUTING.to_be_bytes()));
    let chain =
        [attribute(1, NAME), attribute(3, b"output\0"), attribute(4 | NESTED, &hook), attribute(7, b"nat\0")]
            .concat();
    let expression = attribute(1 | NESTED, &attribute(1, b"redir\0"));
    let rule = [attribute(1, NAME), attribute(2, b"output\0"), attribute(4 | NESTED, &expression)].concat();
    [
        message(BATCH_BEGIN, REQUEST, 0, NFTABLES >> 8, &[]),
        message(NEW_TABLE, CREATE, IPV4, 0, &attribute(1, NAME)),
        message(NEW_CHAIN, CREATE, IPV4, 0, &chain),
        // NLM_F_APPEND
        message(NEW_RULE, CREATE | 0x800, IPV4, 0, &rule),
        message(BATCH_END, REQUEST, 0, NFTABLES >> 8, &[]),
    ]
    .concat()
}

/// Length, type, flags, sequence, port; family, version, resource; attributes.
fn message(kind: u16, flags: u16, family: u8, resource: u16, attributes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(20 + attributes.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(20 + attributes.len());
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([family, 0]);
    bytes.extend(resource.to_be_bytes());
    bytes.extend(attributes);
    bytes
}

/// Length without the padding, type, value, padding to four bytes.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = Vec::with_capacity(value.len() + 8);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}
