//! Rules as people write them.

use std::str::FromStr;

use super::hostname::shown;
use super::ports::{PortSet, Protocol};
use super::rule::{DenyRule, EgressRule, Target};
use crate::{Cidr, Error, NamePattern, Result};

/// What people may write; for messages.
const FORM: &str =
    "expected `HOST`, `*.HOST` or a CIDR, then `:PORTS` and `/udp` where needed, as in `example.com:443`";

impl FromStr for EgressRule {
    type Err = Error;

    /// Reads `HOST[:PORTS][/udp]`, where `HOST` is a name, `*.name`, or a CIDR (of version 6 in brackets where ports follow).
    fn from_str(text: &str) -> Result<Self> {
        let (rest, protocol) = match text.strip_suffix("/udp") {
            Some(rest) => (rest, Protocol::Udp),
            None => (text.strip_suffix("/tcp").unwrap_or(text), Protocol::Tcp),
        };
        let (to, ports) = split(text, rest)?;
        if ports.is_none() && protocol == Protocol::Udp {
            let message =
                format!("`{}` names no port: a rule for UDP needs one, as in `{rest}:123/udp`", shown(text));
            return Err(Error::invalid("parse egress rule", message));
        }
        Ok(Self { to, ports: ports.unwrap_or_default(), protocol, inject: Vec::new() })
    }
}

impl FromStr for DenyRule {
    type Err = Error;

    /// Reads `HOST[:PORTS]`; without ports it means every one.
    fn from_str(text: &str) -> Result<Self> {
        let (to, ports) = split(text, text)?;
        Ok(Self { to, ports: ports.unwrap_or_else(PortSet::any) })
    }
}

fn split(whole: &str, text: &str) -> Result<(Target, Option<PortSet>)> {
    let refused =
        |why: String| Error::invalid("parse egress rule", format!("`{}` is not a rule: {why}", shown(whole)));
    if text.contains("://") || text.contains('@') {
        return Err(refused(format!("it is a URL; {FORM}")));
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (inner, after) =
            rest.split_once(']').ok_or_else(|| refused(format!("a `]` is missing; {FORM}")))?;
        let ports = match after.strip_prefix(':') {
            Some(ports) => Some(PortSet::parse(ports)?),
            None if after.is_empty() => None,
            None => return Err(refused(FORM.to_owned())),
        };
        return Ok((Target::Cidr(Cidr::parse(inner)?), ports));
    }
    if text.matches(':').count() > 1 {
        return Ok((Target::Cidr(Cidr::parse(text)?), None));
    }
    let (host, ports) = match text.split_once(':') {
        Some((host, ports)) => (host, Some(PortSet::parse(ports)?)),
        None => (text, None),
    };
    let looks_numeric = host.bytes().all(|b| b.is_ascii_digit() || b"./".contains(&b)) && !host.is_empty();
    let to = if looks_numeric {
        Target::Cidr(Cidr::parse(host)?)
    } else if host.contains('/') {
        return Err(refused(format!("a path can't be told apart by its host; {FORM}")));
    } else {
        Target::Name(NamePattern::parse(host)?)
    };
    Ok((to, ports))
}
