use std::fmt::Write as _;

use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::Error;

/// A random UUID (version 4), the form of a boot id.
pub(crate) fn uuid() -> Result<String, Error> {
    let mut bytes = bytes()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::with_capacity(36);
    for (n, byte) in bytes.iter().enumerate() {
        if matches!(n, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

fn bytes() -> Result<[u8; 16], Error> {
    let mut bytes = [0; 16];
    // Up to 256 bytes come whole or not at all.
    getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|cause| Error::io("read random bytes", "", cause))?;
    Ok(bytes)
}
