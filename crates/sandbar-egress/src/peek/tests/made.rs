use fastrand::Rng;

/// A hello made by hand.
#[derive(Clone)]
pub(super) struct Made {
    /// Type and data.
    pub(super) extensions: Vec<(u16, Vec<u8>)>,
    /// Bytes of each record's payload; the rest is one record.
    pub(super) records: Vec<usize>,
}

impl Made {
    /// As ordinary clients send it.
    pub(super) fn naming(name: &[u8]) -> Self {
        Self {
            extensions: vec![(10, vec![0, 2, 0, 29]), (0, list(&[(0, name)])), (43, vec![2, 3, 4])],
            records: Vec::new(),
        }
    }

    pub(super) fn without_name() -> Self {
        let mut made = Self::naming(b"");
        made.extensions.remove(1);
        made
    }

    pub(super) fn with(mut self, kind: u16, data: &[u8]) -> Self {
        self.extensions.push((kind, data.to_vec()));
        self
    }

    pub(super) fn in_records(mut self, records: &[usize]) -> Self {
        self.records = records.to_vec();
        self
    }

    /// The message without what frames it.
    pub(super) fn message(&self) -> Vec<u8> {
        let mut extensions = Vec::new();
        for (kind, data) in &self.extensions {
            extensions.extend(kind.to_be_bytes());
            extensions.extend(sized(data));
        }
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        body.extend(sized(&extensions));
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[1], &length[1..], &body].concat()
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        framed(&self.message(), &self.records)
    }
}

/// The message in records of these sizes, and the rest in one.
pub(super) fn framed(message: &[u8], records: &[usize]) -> Vec<u8> {
    let mut rest = message;
    let mut bytes = Vec::new();
    for size in records.iter().copied().chain([usize::MAX]) {
        let (payload, after) = rest.split_at(size.min(rest.len()));
        if !payload.is_empty() {
            bytes.extend([22, 3, 1]);
            bytes.extend(sized(payload));
        }
        rest = after;
    }
    bytes
}

/// The data of an extension with these entries.
pub(super) fn list(entries: &[(u8, &[u8])]) -> Vec<u8> {
    let entries: Vec<u8> =
        entries.iter().flat_map(|(kind, name)| [vec![*kind], sized(name)].concat()).collect();
    sized(&entries)
}

fn sized(data: &[u8]) -> Vec<u8> {
    [&u16::try_from(data.len()).unwrap().to_be_bytes()[..], data].concat()
}

/// A name that may be one, or nearly.
pub(super) fn name(random: &mut Rng) -> Vec<u8> {
    /// What attackers try.
    const PARTS: &[&[u8]] = &[
        b"allowed",
        b"test",
        b"evil",
        b".",
        b".",
        b".",
        b"-",
        b"\0",
        b"ALLOWED",
        b"xn--bcher-kva",
        b"a",
        b" ",
        b"127.0.0.1",
        b"%2e",
        b"\xff",
        b"@",
        b":443",
    ];
    if random.u8(..4) == 0 {
        return b"allowed.test".to_vec();
    }
    (0..random.usize(1..7)).flat_map(|_| random.choice(PARTS).copied().unwrap_or_default().to_vec()).collect()
}
