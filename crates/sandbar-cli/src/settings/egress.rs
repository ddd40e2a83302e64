use sandbar::{DecisionOptions, EgressPolicy, Error, Extent, Follow, Protocol, VerifyOptions};

use crate::args::{
    EgressAction, EgressArgs, EgressLogArgs, EgressVerifyArgs, EgressWhyArgs, NetworkAction, NetworkArgs,
};
use crate::failure::{Failure, Result};
use crate::settings::policy;
use crate::value::EgressPeer;

/// `network`.
#[derive(Debug)]
pub(crate) struct NetworkSettings {
    pub(crate) id: String,
    /// The policy that shall be in force; the one that is stays if absent.
    pub(crate) policy: Option<EgressPolicy>,
}

impl NetworkSettings {
    pub(crate) fn resolve(args: NetworkArgs) -> Result<Self> {
        let NetworkArgs { id, action } = args;
        let policy = match action {
            None => None,
            Some(NetworkAction::Set(set)) => Some(policy::resolve(set.policy)?.ok_or_else(|| {
                let error =
                    Error::invalid("set network", "no policy is given: expected an option that says one");
                Failure::usage(
                    error.with_hint("`--deny-all` denies everything, `--allow HOST` everything but HOST"),
                )
            })?),
        };
        Ok(Self { id, policy })
    }
}

/// `egress`.
#[derive(Debug)]
pub(crate) enum EgressSettings {
    /// Show decisions.
    Log { id: String, options: DecisionOptions, which: Which },
    /// Explain one.
    Why { id: String, peer: EgressPeer, protocol: Protocol },
    /// Try what can be reached.
    Verify(VerifyOptions),
}

/// Which decisions are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    All,
    Denied,
}

impl EgressSettings {
    pub(crate) fn resolve(args: EgressArgs) -> Result<Self> {
        Ok(match args.action {
            EgressAction::Log(EgressLogArgs { id, follow, tail, since, denied }) => Self::Log {
                id,
                options: DecisionOptions {
                    tail: tail.map(|tail| tail.0),
                    since: since.map(|since| since.0),
                    follow: if follow { Follow::Yes } else { Follow::No },
                },
                which: if denied { Which::Denied } else { Which::All },
            },
            EgressAction::Why(EgressWhyArgs { id, peer, udp }) => {
                Self::Why { id, peer, protocol: if udp { Protocol::Udp } else { Protocol::Tcp } }
            }
            EgressAction::Verify(args) => {
                let EgressVerifyArgs { full, policy } = *args;
                let extent = if full { Extent::Full } else { Extent::Quick };
                Self::Verify(VerifyOptions { policy: policy::resolve(policy)?, extent })
            }
        })
    }
}
