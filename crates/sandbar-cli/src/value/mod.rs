//! Values on the command line: one small type each, with errors that say what was expected.

mod audit;
mod copy;
mod count;
mod cpus;
mod duration;
mod egress_peer;
mod egress_rule;
mod env;
mod escape_char;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod inject;
mod mount;
mod name;
mod on_timeout;
mod pair;
mod pids;
mod place;
mod port;
mod publication;
mod resource;
mod restart;
mod signal;
mod since;
mod size;
mod split;
mod state;
mod volume;

use std::fmt;
use std::str::FromStr;

pub(crate) use audit::{AuditArg, AuditFile};
pub(crate) use copy::{CopyBetween, CopyIn, CopyOut, Existing, Parents, Placement};
pub(crate) use count::Count;
pub(crate) use cpus::Cpus;
pub(crate) use duration::HumanDuration;
pub(crate) use egress_peer::EgressPeer;
pub(crate) use egress_rule::{AllowRange, AllowRule, DenyRange};
pub(crate) use env::{EnvArg, parse_env_file};
pub(crate) use escape_char::EscapeChar;
pub(crate) use inject::{Inject, InjectArg, ValueSource};
pub(crate) use mount::Mount;
pub(crate) use name::{is_shaped_like_an_id, sandbox_name};
pub(crate) use on_timeout::OnTimeoutArg;
pub(crate) use pair::Pair;
pub(crate) use pids::Pids;
pub(crate) use place::{GuestPlace, Place};
pub(crate) use port::Port;
pub(crate) use publication::{Listen, Publication};
pub(crate) use resource::{Disk, Memory};
pub(crate) use restart::RestartArg;
pub(crate) use signal::SignalArg;
pub(crate) use since::Since;
pub(crate) use size::Size;
pub(crate) use state::StateArg;
pub(crate) use volume::VolumeArg;

/// Why a value was refused. The value itself is named by whoever reports this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueError(String);

impl ValueError {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ValueError {}

/// A value of the contract's own types, with an error that does not name the operation: whoever reports it does.
pub(crate) fn contract<T: FromStr<Err = sandbar::Error>>(text: &str) -> Result<T, ValueError> {
    Ok(text.parse()?)
}

impl From<sandbar::Error> for ValueError {
    fn from(error: sandbar::Error) -> Self {
        Self(error.message().to_owned())
    }
}
