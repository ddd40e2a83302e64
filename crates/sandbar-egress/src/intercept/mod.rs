//! TLS read in the host's place, for rules that ask for it: a certificate authority of the sandbox, TLS to both sides, and the headers that the sandbox
//! never sees.

mod authority;
mod leaves;
mod prefixed;
mod sealed;
mod serve;
mod tls;
mod trust;

pub use authority::Authority;
pub use sealed::SealedAuthority;
pub use serve::serve;
pub use trust::Trust;

#[cfg(test)]
mod tests;
