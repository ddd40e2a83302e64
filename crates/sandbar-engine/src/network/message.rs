//! Netlink messages as the kernel's headers define them.

/// `NLMSG_HDRLEN`: length, type, flags, sequence, port.
const HEAD: usize = 16;

/// What a message holds after its head.
#[derive(Debug)]
pub(crate) struct Body<'a> {
    /// The subsystem's own head.
    pub(crate) head: &'a [u8],
    pub(crate) attributes: &'a [u8],
}

/// One message with this sequence number.
pub(crate) fn message(kind: u16, flags: u16, sequence: u32, body: &Body<'_>) -> Vec<u8> {
    let length = HEAD + body.head.len() + body.attributes.len();
    let mut bytes = Vec::with_capacity(length);
    bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(body.head);
    bytes.extend(body.attributes);
    bytes
}

/// Length without the padding, type, value, padding to four bytes.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = Vec::with_capacity(value.len() + 8);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}
