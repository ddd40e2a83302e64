use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident, $bytes:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// A new one, by chance.
            pub fn random() -> Self {
                Self(random())
            }

            /// From lower-case hexadecimal digits; all zeroes is none.
            pub fn parse(text: &str) -> Option<Self> {
                let mut bytes = [0; $bytes];
                if text.len() != 2 * $bytes {
                    return None;
                }
                for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
                    *byte = digit(pair[0])? << 4 | digit(pair[1])?;
                }
                Some(Self(bytes)).filter(|id| id.0 != [0; $bytes])
            }

            /// Its bytes.
            pub fn to_bytes(self) -> [u8; $bytes] {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }

        impl TryFrom<String> for $name {
            type Error = &'static str;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                Self::parse(&text).ok_or(concat!("not a ", stringify!($name)))
            }
        }
    };
}

id_type!(
    /// Names a trace.
    TraceId,
    16
);
id_type!(
    /// Names a span within its trace.
    SpanId,
    8
);

pub(super) fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// Random bytes, not all zero. Where the kernel gives none (it does not, once it has booted) the clock and the process have to do: ids have to
/// differ, nobody has to be unable to guess them.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(got) if got > 0 => filled += got,
            Err(rustix::io::Errno::INTR) => {}
            _ => break,
        }
    }
    if bytes == [0; N] {
        let now = jiff::Timestamp::now().as_nanosecond().to_le_bytes();
        let pid = rustix::process::getpid().as_raw_nonzero().get().to_le_bytes();
        for (byte, other) in bytes.iter_mut().zip(pid.into_iter().chain(now)) {
            *byte = other;
        }
    }
    bytes
}
