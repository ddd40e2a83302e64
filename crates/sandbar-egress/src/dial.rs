use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use sandbar_core::{DecisionReason, Verdict};
use tokio::net::TcpStream;

use crate::ruling::Ruling;

/// Connects to the host that a connection was judged for. It resolves the name each time and refuses addresses that no policy allows, so that
/// whoever holds it need not look at addresses.
#[async_trait]
pub trait Dialer: Send + Sync {
    /// A new connection, within a bound of time.
    async fn dial(&self) -> Result<TcpStream, DialError>;
}

/// Why there is no connection.
#[derive(Debug)]
pub enum DialError {
    /// The name does not exist outside, or could not be looked up.
    Unresolved(String),
    /// Every address of the name is one that the policy can't reach.
    Forbidden(IpAddr),
    /// This rule denies the address of the name.
    DeniedBy(IpAddr, Arc<str>),
    /// No address took the connection; the last one that was tried, if any was.
    Unreachable(Option<IpAddr>, io::Error),
}

impl DialError {
    /// What is told about it.
    pub fn reason(&self) -> DecisionReason {
        match self {
            Self::Unresolved(_) => DecisionReason::Unresolved,
            Self::Forbidden(_) => DecisionReason::ForbiddenAddress,
            Self::DeniedBy(..) => DecisionReason::DenyRule,
            Self::Unreachable(..) => DecisionReason::Unreachable,
        }
    }

    /// Whether the policy denied it, or it did not come off.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Forbidden(_) | Self::DeniedBy(..) => Verdict::Denied,
            Self::Unresolved(_) | Self::Unreachable(..) => Verdict::Failed,
        }
    }

    /// What is told about it, where `ruling` allowed the name.
    pub fn ruling(&self, ruling: &Ruling) -> Ruling {
        let rule = match self {
            Self::DeniedBy(_, rule) => Some(rule.clone()),
            _ => ruling.rule.clone(),
        };
        Ruling { verdict: self.verdict(), reason: self.reason(), rule, inject: None }
    }

    /// The address that it was about.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Unresolved(_) => None,
            Self::Forbidden(address) | Self::DeniedBy(address, _) => Some(*address),
            Self::Unreachable(address, _) => *address,
        }
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unresolved(why) => write!(f, "resolve the name: {why}"),
            Self::Forbidden(address) => {
                write!(f, "the name's address `{address}` is one that no name may lead to")
            }
            Self::DeniedBy(address, _) => write!(f, "the name's address is `{address}`"),
            Self::Unreachable(Some(address), _) => write!(f, "connect to `{address}`"),
            Self::Unreachable(None, _) => f.write_str("connect"),
        }
    }
}

impl std::error::Error for DialError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreachable(_, cause) => Some(cause),
            Self::Unresolved(_) | Self::Forbidden(_) | Self::DeniedBy(..) => None,
        }
    }
}
