use super::client_hello::HelloFlaw;

/// Descriptions of alerts (RFC 8446, section 6).
const UNEXPECTED_MESSAGE: u8 = 10;
const DECODE_ERROR: u8 = 50;
const INTERNAL_ERROR: u8 = 80;
const UNRECOGNIZED_NAME: u8 = 112;
const ACCESS_DENIED: u8 = 49;

/// A whole record that says why a TLS connection ends before it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alert(u8);

impl Alert {
    /// The policy denies the host.
    pub const DENIED: Self = Self(ACCESS_DENIED);
    /// The host can't be reached, though it is allowed.
    pub const UNREACHABLE: Self = Self(INTERNAL_ERROR);

    /// What a refused hello is answered with.
    pub fn of(flaw: HelloFlaw) -> Self {
        match flaw {
            HelloFlaw::NotTls => Self(UNEXPECTED_MESSAGE),
            HelloFlaw::TooLong | HelloFlaw::Malformed(_) => Self(DECODE_ERROR),
            HelloFlaw::NoName | HelloFlaw::NotAName | HelloFlaw::OtherName => Self(UNRECOGNIZED_NAME),
        }
    }

    /// The bytes: type alert, version as in a server's first record, two bytes of payload, fatal.
    pub const fn record(self) -> [u8; 7] {
        [21, 3, 3, 0, 2, 2, self.0]
    }
}
