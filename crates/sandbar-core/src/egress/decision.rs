use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Something that the gateway decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// When.
    pub at: Timestamp,
    /// About what.
    pub kind: DecisionKind,
    /// How.
    pub verdict: Verdict,
    /// Why.
    pub reason: DecisionReason,
    /// The name that was asked for. What is no host name stands here escaped and cut short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The address: that which was dialled in the end, or which the sandbox asked for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The rule that decided, as it is written; where a port is not allowed, the first that allows the host at others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// More: what was sent instead of what was expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Bytes that left the sandbox, at the end of a flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_out: Option<u64>,
    /// Bytes that came in, at the end of a flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_in: Option<u64>,
    /// How many more of the same kind came so fast that this stands for them all.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeated: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// About what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    /// A question to the resolver.
    Dns,
    /// A TCP connection.
    Tcp,
    /// An HTTP request in one.
    Http,
    /// A UDP flow.
    Udp,
    /// A change of the policy.
    Policy,
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Allowed.
    Allowed,
    /// Denied: by the policy, or by what no policy allows.
    Denied,
    /// Allowed, and it did not come off: the other side did not answer.
    Failed,
    /// A flow that was allowed is over.
    Closed,
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DecisionReason {
    /// A rule allows it.
    Rule,
    /// No rule speaks of it, and the default is to allow.
    Default,
    /// It is the gateway's own control name.
    Control,
    /// No rule allows the name or address.
    NotAllowed,
    /// Rules allow the host, at other ports or by another protocol.
    PortNotAllowed,
    /// A rule denies it.
    DenyRule,
    /// What was asked for is no host name.
    NotAHostname,
    /// The address is one that no policy allows: the host's, loopback, private, link-local, metadata, multicast, or reserved.
    ForbiddenAddress,
    /// TLS or HTTP named another host than the connection was for.
    NameMismatch,
    /// Something else than TLS came where TLS was expected.
    NotTls,
    /// Something else than HTTP came where HTTP was expected.
    NotHttp,
    /// A request for another protocol than `websocket`.
    UpgradeNotAllowed,
    /// A request for a tunnel through the host: `CONNECT`.
    TunnelNotAllowed,
    /// What came can be read in more than one way, or in none.
    Malformed,
    /// The start of a connection did not come in time.
    TooSlow,
    /// A limit of the sandbox was reached; `detail` names it.
    Limit,
    /// What the sandbox may use over its life, or its gateway's, is used up; `detail` names it.
    UsedUp,
    /// No synthetic address is left for another name.
    PoolExhausted,
    /// The name does not exist outside, or could not be looked up.
    Unresolved,
    /// The host outside did not take the connection.
    Unreachable,
    /// TLS could not be agreed on, with the host outside or, where TLS is read, with the sandbox; `detail` says with which.
    TlsFailed,
    /// Another policy is in force.
    PolicySet,
    /// The policy changed, and the flow is not allowed any more.
    PolicyChanged,
    /// The flow ended as flows do.
    Finished,
    /// The connection was to the gateway's own address.
    GatewayItself,
    /// The kind of question is not answered: the resolver gives addresses of version 4 only.
    RecordNotServed,
}

impl DecisionReason {
    /// In a sentence, without the end.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Rule => "a rule of the sandbox's egress policy allows it",
            Self::Default => "the sandbox's egress policy allows public addresses",
            Self::Control => "it is the gateway's own control name",
            Self::NotAllowed => "the sandbox's egress policy does not allow this host",
            Self::PortNotAllowed => {
                "the sandbox's egress policy allows this host, but not at this port or by this protocol"
            }
            Self::DenyRule => "a rule of the sandbox's egress policy denies it",
            Self::NotAHostname => "it is not a host name",
            Self::ForbiddenAddress => {
                "the address is the host's, private, link-local, metadata or reserved, which the sandbox's egress policy can't reach"
            }
            Self::NameMismatch => {
                "the request names another host than the connection was made for, which the sandbox's egress policy does not allow"
            }
            Self::NotTls => "the sandbox's egress policy expects TLS here and something else came",
            Self::NotHttp => "the sandbox's egress policy expects HTTP here and something else came",
            Self::UpgradeNotAllowed => "the sandbox's egress policy allows no upgrade but to websocket",
            Self::TunnelNotAllowed => "the sandbox's egress policy allows no tunnel through a host",
            Self::Malformed => {
                "what was sent can't be read in exactly one way, so the sandbox's egress policy can't judge it"
            }
            Self::TooSlow => "the start of the connection did not come in time",
            Self::Limit => "a limit of the sandbox's egress was reached",
            Self::UsedUp => "the sandbox has used up what its egress may use over its life",
            Self::PoolExhausted => "the sandbox has used up its addresses for names",
            Self::Unresolved => "the host's name could not be resolved",
            Self::Unreachable => "the host did not take the connection",
            Self::TlsFailed => "TLS could not be agreed on",
            Self::PolicySet => "the sandbox's egress policy is another one now",
            Self::PolicyChanged => "the sandbox's egress policy changed and does not allow it any more",
            Self::Finished => "it ended",
            Self::GatewayItself => "the gateway itself is no destination",
            Self::RecordNotServed => "the resolver serves addresses of version 4 only",
        }
    }

    /// Whether trying again, without a change of the policy, may go otherwise.
    pub fn may_retry(self) -> bool {
        matches!(self, Self::TooSlow | Self::Limit | Self::Unresolved | Self::Unreachable)
    }
}

/// What would be decided, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Allowed or denied.
    pub verdict: Verdict,
    /// Why.
    pub reason: DecisionReason,
    /// The rule that decides, as it is written; where the port is not allowed, the first that allows the host at others.
    pub rule: Option<String>,
    /// The answer in a sentence or two, which say whether a retry can help.
    pub sentence: String,
}

/// What a gateway counted since the sandbox started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EgressCounters {
    /// Connections and flows that were allowed.
    pub allowed: u64,
    /// Questions, connections, requests and flows that were denied.
    pub denied: u64,
    /// Allowed ones that did not come off.
    pub failed: u64,
    /// Questions to the resolver.
    pub questions: u64,
    /// Connections and flows now.
    pub open: u64,
    /// Bytes that left the sandbox.
    pub bytes_out: u64,
    /// Bytes that came in.
    pub bytes_in: u64,
}
