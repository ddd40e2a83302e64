//! The probe: a role of the `sandbar` executable that tries ways out, in a sandbox or on the host, and says what came of each. It judges nothing.

mod attempt;
mod dns;
mod kernel;
mod listen;
mod reply;
mod role;
mod tcp;
#[cfg(test)]
mod tests;
mod tried;
mod work;

pub(crate) use attempt::{
    Attempt, DnsExpect, Expect, HostPlace, Piece, Question, Raw, SocketKind, TcpAttempt, Transport,
};
pub(crate) use role::LISTEN;
pub use role::{PROBE_NAME, probe_main};
pub(crate) use tried::{Outcome, Tried};
pub(crate) use work::{MAX_INPUT, Numbered, try_all};
