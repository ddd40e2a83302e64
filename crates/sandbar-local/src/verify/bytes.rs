//! What is said to targets other than TLS servers.

/// The first packet of a QUIC connection of a version that nobody speaks: a server answers with those that it does (RFC 9000, 6). It takes packets of
/// 1200 bytes and more only.
pub(crate) fn quic_hello() -> Vec<u8> {
    let mut packet = vec![0xc0, 0x0a, 0x0a, 0x0a, 0x0a, 8];
    packet.extend_from_slice(&[0x5a; 8]);
    packet.extend_from_slice(&[8, 0x5b, 0x5b, 0x5b, 0x5b, 0x5b, 0x5b, 0x5b, 0x5b]);
    packet.resize(1200, 0);
    packet
}

/// A question for the time (RFC 5905, version 4, client).
pub(crate) fn time_question() -> Vec<u8> {
    let mut packet = vec![0; 48];
    packet[0] = 0x23;
    packet
}

/// An ICMP echo request, with its checksum.
pub(crate) fn ping_v4() -> Vec<u8> {
    let mut packet = vec![8, 0, 0, 0, 0x5a, 0x5a, 0, 1];
    let sum =
        packet.chunks(2).fold(0_u32, |sum, pair| sum + u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let folded = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap_or_default();
    packet[2..4].copy_from_slice(&(!folded).to_be_bytes());
    packet
}

/// An echo request of version 6; the kernel fills in the checksum.
pub(crate) fn ping_v6() -> Vec<u8> {
    vec![128, 0, 0, 0, 0x5a, 0x5a, 0, 1]
}

/// A request for the routing table's change: the head of a message of `kind`, then `body`.
pub(crate) fn routing_change(kind: u16, body: &[u8]) -> Vec<u8> {
    // Request, acknowledge, create.
    const FLAGS: u16 = 0x1 | 0x4 | 0x400;
    let length = u32::try_from(16 + body.len()).unwrap_or_default();
    let mut message = Vec::new();
    message.extend_from_slice(&length.to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&FLAGS.to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(body);
    message
}

/// An HTTP request of the lines, and an end of its head.
pub(crate) fn request(lines: &[&str]) -> Vec<u8> {
    let mut text = lines.join("\r\n");
    text.push_str("\r\n\r\n");
    text.into_bytes()
}
