//! The first message of a TLS handshake, byte by byte: honest ones that every server goes on with, and others that no library would send.

/// The extension that names the host (`server_name`).
const SERVER_NAME: u16 = 0;
/// Bytes of random and session; any will do, since no handshake is finished.
const FILLER: [u8; 32] = [0x5a; 32];
/// The parts of version 1.3 and 1.2 that servers in use all speak, without a name: groups, signatures, versions, a key share of X25519 (every 32
/// bytes are a public key), and point formats.
const EXTENSIONS: &[(u16, &[u8])] = &[
    (10, b"\x00\x06\x00\x1d\x00\x17\x00\x18"),
    (11, b"\x01\x00"),
    (13, b"\x00\x10\x04\x03\x05\x03\x08\x04\x08\x05\x08\x06\x04\x01\x05\x01\x06\x01"),
    (43, b"\x04\x03\x04\x03\x03"),
];
/// Cipher suites: those of version 1.3, and of version 1.2 with forward secrecy.
const SUITES: &[u8] = b"\x13\x01\x13\x02\x13\x03\xc0\x2b\xc0\x2c\xc0\x2f\xc0\x30\xcc\xa9\xcc\xa8";
/// Most bytes of one TLS record (RFC 8446, 5.1).
const MAX_RECORD: usize = 1 << 14;

/// A hello in the making.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hello {
    /// What `server_name` lists; `None` is no such extension.
    lists: Vec<Vec<Vec<u8>>>,
    /// Bytes of padding before the names.
    padding: usize,
}

impl Hello {
    /// With one name.
    pub(crate) fn of(name: impl Into<Vec<u8>>) -> Self {
        Self { lists: vec![vec![name.into()]], padding: 0 }
    }

    /// Without a name.
    pub(crate) fn nameless() -> Self {
        Self::default()
    }

    /// With one more name in the list.
    pub(crate) fn and(mut self, name: impl Into<Vec<u8>>) -> Self {
        match self.lists.last_mut() {
            Some(list) => list.push(name.into()),
            None => self.lists.push(vec![name.into()]),
        }
        self
    }

    /// With one more list: the extension stands there twice.
    pub(crate) fn again(mut self, name: impl Into<Vec<u8>>) -> Self {
        self.lists.push(vec![name.into()]);
        self
    }

    /// With so many bytes before the names.
    pub(crate) fn padded(mut self, bytes: usize) -> Self {
        self.padding = bytes;
        self
    }

    /// The hello in as few records as it fits in.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.records(MAX_RECORD)
    }

    /// The hello in records of at most `size` bytes each.
    pub(crate) fn records(&self, size: usize) -> Vec<u8> {
        let message = self.message();
        message
            .chunks(size.clamp(1, MAX_RECORD))
            .flat_map(|chunk| [b"\x16\x03\x01", &length(chunk.len())[..], chunk].concat())
            .collect()
    }

    fn message(&self) -> Vec<u8> {
        let mut extensions = Vec::new();
        // Padding (RFC 7685) has a length of two bytes; a longer one stands there more than once.
        let mut left = self.padding;
        while left > 0 {
            let part = left.min(usize::from(u16::MAX) / 4);
            extension(&mut extensions, 21, &vec![0; part]);
            left -= part;
        }
        for list in &self.lists {
            let names: Vec<u8> =
                list.iter().flat_map(|name| [&b"\0"[..], &length(name.len()), name].concat()).collect();
            extension(&mut extensions, SERVER_NAME, &[&length(names.len())[..], &names].concat());
        }
        for (kind, body) in EXTENSIONS {
            extension(&mut extensions, *kind, body);
        }
        extension(&mut extensions, 51, &[&b"\x00\x24\x00\x1d\x00\x20"[..], &FILLER].concat());
        let body = [
            &b"\x03\x03"[..],
            &FILLER,
            b"\x20",
            &FILLER,
            &length(SUITES.len()),
            SUITES,
            b"\x01\x00",
            &length(extensions.len()),
            &extensions,
        ]
        .concat();
        [&[1, 0][..], &length(body.len()), &body].concat()
    }
}

fn extension(to: &mut Vec<u8>, kind: u16, body: &[u8]) {
    to.extend_from_slice(&kind.to_be_bytes());
    to.extend_from_slice(&length(body.len()));
    to.extend_from_slice(body);
}

/// A length of two bytes; what is longer is nothing that is made here.
fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_add_up_in_every_form() {
        for hello in [
            Hello::nameless(),
            Hello::of("example.test"),
            Hello::of("").and("b.test").again("c.test"),
            Hello::of("example.test").padded(40_000),
        ] {
            let message = hello.message();
            let body = usize::from(u16::from_be_bytes([message[2], message[3]]));
            assert_eq!((message[0], message[1], message.len()), (1, 0, body + 4), "{hello:?}");
            for size in [1, 5, MAX_RECORD] {
                let mut records = &hello.records(size)[..];
                let mut read = Vec::new();
                while let [0x16, 3, 1, high, low, rest @ ..] = records {
                    let (record, rest) = rest.split_at(usize::from(u16::from_be_bytes([*high, *low])));
                    read.extend_from_slice(record);
                    records = rest;
                }
                assert_eq!((read, records), (message.clone(), &b""[..]), "{hello:?} by {size}");
            }
        }
    }
}
