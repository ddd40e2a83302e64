//! The Sandbar contract.
//!
//! A [`SandboxProvider`] makes and finds sandboxes; a [`Sandbox`] runs commands and holds files. What a backend may lack is a *part*, reached
//! through an accessor that answers `Option`: holding the part is the proof that it works here.
//!
//! Five sentences hold everywhere. Absence is a positive statement: `None`, `false` and an empty list are answers, a lookup that failed is an
//! error. A part that is missing is `None`, an option that is missing is [`ErrorKind::Unsupported`] before any effect, an attempt that failed
//! is anything else. What is unknown resolves to the side that destroys nothing. Results are measurements. Nothing falls back silently.

mod build_file;
mod capabilities;
mod command;
mod egress;
mod env;
mod error;
mod ext;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod id;
mod memory;
mod options;
mod parts;
mod path;
mod provider;
mod publication;
mod record;
mod sandbox;

pub use build_file::{BuildFile, BuildInstruction, BuildLine, MAX_BUILD_FILE};
pub use capabilities::{Capabilities, Capability};
pub use command::{Command, ExitStatus, KillCause, Output};
pub use egress::{
    Cidr, Decision, DecisionKind, DecisionReason, DenyRule, Destination, EgressCounters, EgressPolicy,
    EgressRule, EgressRules, Explanation, HeaderInjection, Hostname, MAX_RULES, NamePattern, Otherwise,
    PortSet, Protocol, Target, Verdict,
};
pub use env::EnvVars;
pub use error::{Error, ErrorKind, PartialOutput, Result, Retry};
pub use ext::{ProviderExt, SandboxExt};
pub use id::{Labels, ProjectId, SandboxId, SandboxName, TemplateId, UserName, VolumeName};
pub use memory::{Fault, MemoryBuilder, MemoryProvider, Program, ProgramContext};
pub use options::{
    Base, CreateOptions, Deadline, DeadlineAction, DeadlineMode, GetOptions, HostMount, Isolation, Lifetime,
    LimitDemand, MainCommand, MountAccess, Query, Resources, RestartPolicy, VolumeMount, Wake,
};
pub use parts::*;
pub use path::GuestPath;
pub use provider::SandboxProvider;
pub use publication::PortPublication;
pub use record::{
    Capacity, EgressSummary, Fallback, GatewayState, IdMapping, IsolationReport, LastKill, Limit, LimitState,
    PortMapping, SandboxRecord, State, VolumeAttachment,
};
pub use sandbox::Sandbox;
