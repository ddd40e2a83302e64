use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::injection::HeaderInjection;
use super::ports::{PortSet, Protocol};
use crate::{Cidr, Hostname, NamePattern};

/// What a rule is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Hosts by name.
    Name(NamePattern),
    /// Hosts by address. A private address is meant only by a range that lies wholly within its private block; loopback, the host's own,
    /// link-local and metadata addresses are meant by none.
    Cidr(Cidr),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(pattern) => pattern.fmt(f),
            Self::Cidr(cidr) => cidr.fmt(f),
        }
    }
}

/// Where a program wants to go.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Destination {
    /// By name.
    Name(Hostname),
    /// By address.
    Address(IpAddr),
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// What may be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressRule {
    /// Which hosts.
    pub to: Target,
    /// At which ports.
    #[serde(default)]
    pub ports: PortSet,
    /// How.
    #[serde(default)]
    pub protocol: Protocol,
    /// Headers for each request. With any, the gateway reads and speaks TLS in the host's place, with a certificate authority of this sandbox
    /// alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inject: Vec<HeaderInjection>,
}

impl EgressRule {
    /// TCP to the default ports.
    pub fn new(to: Target) -> Self {
        Self { to, ports: PortSet::default(), protocol: Protocol::Tcp, inject: Vec::new() }
    }

    /// At these ports instead.
    pub fn with_ports(mut self, ports: PortSet) -> Self {
        self.ports = ports;
        self
    }

    /// By this protocol instead.
    pub fn with_protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// With a header for each request.
    pub fn with_header(mut self, header: HeaderInjection) -> Self {
        self.inject.push(header);
        self
    }
}

/// `example.com:80,443`, `*.example.com:any`, `192.0.2.0/24:5432`, `[2001:db8::/32]:443`, each with `/udp` where it is that.
impl fmt::Display for EgressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_target(f, &self.to)?;
        write!(f, ":{}", self.ports)?;
        if self.protocol == Protocol::Udp { f.write_str("/udp") } else { Ok(()) }
    }
}

/// What may not be reached, of what no other rule allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DenyRule {
    /// Which hosts.
    pub to: Target,
    /// At which ports; every one by default.
    #[serde(default = "PortSet::any")]
    pub ports: PortSet,
}

impl DenyRule {
    /// At every port.
    pub fn new(to: Target) -> Self {
        Self { to, ports: PortSet::any() }
    }

    /// At these ports only.
    pub fn with_ports(mut self, ports: PortSet) -> Self {
        self.ports = ports;
        self
    }
}

impl fmt::Display for DenyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_target(f, &self.to)?;
        if self.ports == PortSet::any() { Ok(()) } else { write!(f, ":{}", self.ports) }
    }
}

fn write_target(f: &mut fmt::Formatter<'_>, target: &Target) -> fmt::Result {
    match target {
        Target::Cidr(cidr) if cidr.network().is_ipv6() => write!(f, "[{cidr}]"),
        target => write!(f, "{target}"),
    }
}
