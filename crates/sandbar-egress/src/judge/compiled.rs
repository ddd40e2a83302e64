use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use sandbar_core::{
    Cidr, DecisionReason, Destination, EgressPolicy, EgressRule, EgressRules, Error, Explanation, Hostname,
    NamePattern, Otherwise, PortSet, Protocol, Result, Target,
};

use super::names::NameTable;
use super::ports::PortTable;
use super::ranges::RangeTable;
use crate::address::{AddressClass, classify};
use crate::control::{CONTROL_PORT, is_control};
use crate::ruling::Ruling;

/// A policy, ready to judge.
///
/// Of the rules that allow a connection the most specific decides: a name before what is above it, a longer prefix before a shorter one. Among
/// those, one that injects headers before one that does not, then the first as they are written.
#[derive(Debug)]
pub struct Judge {
    policy: EgressPolicy,
    rules: EgressRules,
    tcp: Side,
    udp: Side,
    deny: Side,
}

#[derive(Debug, Default)]
struct Side {
    names: NameTable,
    ranges: RangeTable,
}

/// Whether a rule spells a name out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelled {
    /// In full.
    Full,
    /// A rule allows what is below a name; so many bytes of it are the sandbox's own choice.
    Below(usize),
    /// No rule speaks of it.
    Not,
}

/// What the resolver makes of a name.
#[derive(Clone, Debug)]
pub(crate) struct NameRuling {
    pub(crate) ruling: Ruling,
    pub(crate) spelled: Spelled,
}

impl Judge {
    /// Compiles a policy.
    pub fn new(policy: &EgressPolicy) -> Result<Self> {
        const OPERATION: &str = "compile egress policy";
        policy.check(OPERATION)?;
        let rules = match policy {
            EgressPolicy::DenyAll => EgressRules::default(),
            EgressPolicy::AllowAll => EgressRules { otherwise: Otherwise::Allow, ..EgressRules::default() },
            EgressPolicy::Rules(rules) => rules.clone(),
            _ => {
                return Err(Error::unsupported(
                    OPERATION,
                    policy.kind(),
                    "the gateway does not know this kind",
                ));
            }
        };
        let allow = |protocol| {
            let of_protocol = rules.allow.iter().enumerate().filter(|(_, rule)| rule.protocol == protocol);
            let mut of_protocol: Vec<(usize, &EgressRule)> = of_protocol.collect();
            of_protocol.sort_by_key(|(number, rule)| (rule.inject.is_empty(), *number));
            side(of_protocol.into_iter().map(|(number, rule)| (number, &rule.to, &rule.ports)))
        };
        let (tcp, udp) = (allow(Protocol::Tcp), allow(Protocol::Udp));
        let deny = side(rules.deny.iter().enumerate().map(|(number, rule)| (number, &rule.to, &rule.ports)));
        Ok(Self { policy: policy.clone(), rules, tcp, udp, deny })
    }

    /// The policy as it was given.
    pub fn policy(&self) -> &EgressPolicy {
        &self.policy
    }

    /// What it says about a connection.
    pub fn decide(&self, destination: &Destination, port: u16, protocol: Protocol) -> Ruling {
        match destination {
            Destination::Name(name) => self.decide_name(name, port, protocol),
            Destination::Address(address) => self.decide_address(*address, port, protocol),
        }
    }

    /// What it says, in words.
    pub fn explain(&self, destination: &Destination, port: u16, protocol: Protocol) -> Explanation {
        let ruling = self.decide(destination, port, protocol);
        let verdict = if ruling.is_allowed() { "allowed" } else { "denied" };
        let why = ruling.reason.sentence();
        let mut sentence = format!("`{destination}` at port {port} by {protocol} is {verdict}: {why}.");
        let elsewhere = ruling.rule.as_deref().filter(|_| ruling.reason == DecisionReason::PortNotAllowed);
        if let Some(rule) = elsewhere.and_then(|text| text.parse::<EgressRule>().ok()) {
            // Writing to a text can't fail.
            let _ = write!(sentence, " The rule `{rule}` allows port {} by {}.", rule.ports, rule.protocol);
        }
        match (ruling.is_allowed(), destination) {
            (false, _) => sentence.push_str(" A retry will not help."),
            (true, Destination::Name(_)) if ruling.reason != DecisionReason::Control => {
                sentence.push_str(" The name is resolved at each connection; an address that the policy can't reach is refused then.");
            }
            (true, _) => {}
        }
        Explanation {
            verdict: ruling.verdict,
            reason: ruling.reason,
            rule: ruling.rule.map(|rule| rule.to_string()),
            sentence,
        }
    }

    /// Whether the resolver gives `name` an address: a rule allows it at some port, or the default allows it.
    pub(crate) fn serves(&self, name: &Hostname) -> NameRuling {
        let whole = |ruling| NameRuling { ruling, spelled: Spelled::Not };
        if is_control(name) {
            return NameRuling {
                ruling: Ruling::allowed(DecisionReason::Control, None),
                spelled: Spelled::Full,
            };
        }
        if name.is_local() {
            return whole(Ruling::denied(DecisionReason::ForbiddenAddress, None));
        }
        for side in [&self.tcp, &self.udp] {
            for (pattern, ports) in side.names.about(name) {
                let Some(rule) = ports.any() else { continue };
                let spelled = match pattern {
                    NamePattern::Exact(_) => Spelled::Full,
                    NamePattern::Below(suffix) => {
                        Spelled::Below(name.as_str().len().saturating_sub(suffix.as_str().len() + 1))
                    }
                };
                return NameRuling { ruling: self.by_rule(rule), spelled };
            }
        }
        let denied = self.deny.names.about(name).find_map(|(_, ports)| ports.every());
        whole(self.by_default(denied, || Ruling::denied(DecisionReason::NotAllowed, None)))
    }

    /// Whether a connection that `ruling` allowed by name may go to `address`, which is what the name led to.
    pub(crate) fn permits(&self, ruling: &Ruling, address: IpAddr, port: u16, protocol: Protocol) -> bool {
        let class = classify(address);
        if !ruling.is_allowed() || class == AddressClass::Forbidden {
            return false;
        }
        if self.allowed_range(address, class, port, protocol).is_some() {
            return true;
        }
        match (class, ruling.reason) {
            (AddressClass::Public, DecisionReason::Rule) => true,
            (AddressClass::Public, DecisionReason::Default) => self.denied_range(address, port).is_none(),
            _ => false,
        }
    }

    /// The rule that denies `address`, to which a name led that `ruling` allows, if one does.
    pub(crate) fn denying(&self, ruling: &Ruling, address: IpAddr, port: u16) -> Option<Arc<str>> {
        let may_be_denied = match classify(address) {
            AddressClass::Public => ruling.reason == DecisionReason::Default,
            AddressClass::Private(_) => true,
            AddressClass::Forbidden => false,
        };
        let rule = self.rules.deny.get(self.denied_range(address, port).filter(|_| may_be_denied)?)?;
        Some(rule.to_string().into())
    }

    /// Every port that a rule for UDP names, if they are `most` at the most; else one that is too many.
    pub(crate) fn udp_ports(&self, most: usize) -> std::result::Result<BTreeSet<u16>, u16> {
        let tables = self.udp.names.tables().chain(self.udp.ranges.tables());
        let mut ports = BTreeSet::new();
        for port in tables.flat_map(PortTable::ports) {
            if ports.len() == most && !ports.contains(&port) {
                return Err(port);
            }
            ports.insert(port);
        }
        Ok(ports)
    }

    /// The first rule for UDP that names `port`, as it is written.
    pub(crate) fn udp_rule(&self, port: u16) -> Option<String> {
        let mut rules = self.rules.allow.iter().filter(|rule| rule.protocol == Protocol::Udp);
        rules.find(|rule| rule.ports.contains(port)).map(ToString::to_string)
    }

    fn decide_name(&self, name: &Hostname, port: u16, protocol: Protocol) -> Ruling {
        if is_control(name) {
            return match (port, protocol) {
                (CONTROL_PORT, Protocol::Tcp) => Ruling::allowed(DecisionReason::Control, None),
                _ => Ruling::denied(DecisionReason::PortNotAllowed, None),
            };
        }
        if name.is_local() {
            return Ruling::denied(DecisionReason::ForbiddenAddress, None);
        }
        if let Some(rule) = self.side(protocol).names.about(name).find_map(|(_, ports)| ports.get(port)) {
            return self.by_rule(rule);
        }
        let denied = self.deny.names.about(name).find_map(|(_, ports)| ports.get(port));
        self.by_default_of(protocol, denied, || {
            let about = [&self.tcp, &self.udp].into_iter().flat_map(|side| side.names.about(name));
            self.elsewhere(about.map(|(_, ports)| ports), DecisionReason::NotAllowed)
        })
    }

    fn decide_address(&self, address: IpAddr, port: u16, protocol: Protocol) -> Ruling {
        let class = classify(address);
        if class == AddressClass::Forbidden {
            return Ruling::denied(DecisionReason::ForbiddenAddress, None);
        }
        if let Some(rule) = self.allowed_range(address, class, port, protocol) {
            return self.by_rule(rule);
        }
        let denied = self.denied_range(address, port);
        let elsewhere = |or| {
            let about = [&self.tcp, &self.udp].into_iter().flat_map(|side| side.ranges.about(address));
            let about = about.filter(|(range, _)| means(*range, class));
            self.elsewhere(about.map(|(_, ports)| ports), or)
        };
        if class != AddressClass::Public {
            return match denied {
                Some(rule) => self.by_deny_rule(rule),
                None => elsewhere(DecisionReason::ForbiddenAddress),
            };
        }
        self.by_default_of(protocol, denied, || elsewhere(DecisionReason::NotAllowed))
    }

    fn allowed_range(
        &self,
        address: IpAddr,
        class: AddressClass,
        port: u16,
        protocol: Protocol,
    ) -> Option<usize> {
        let about = self.side(protocol).ranges.about(address);
        about.filter(|(range, _)| means(*range, class)).find_map(|(_, ports)| ports.get(port))
    }

    fn denied_range(&self, address: IpAddr, port: u16) -> Option<usize> {
        self.deny.ranges.about(address).find_map(|(_, ports)| ports.get(port))
    }

    fn side(&self, protocol: Protocol) -> &Side {
        match protocol {
            Protocol::Tcp => &self.tcp,
            Protocol::Udp => &self.udp,
        }
    }

    fn by_rule(&self, number: usize) -> Ruling {
        let Some(rule) = self.rules.allow.get(number) else {
            return Ruling::denied(DecisionReason::NotAllowed, None);
        };
        let inject = (!rule.inject.is_empty()).then(|| Arc::from(rule.inject.as_slice()));
        Ruling { inject, ..Ruling::allowed(DecisionReason::Rule, Some(rule.to_string().into())) }
    }

    fn by_deny_rule(&self, number: usize) -> Ruling {
        let rule = self.rules.deny.get(number).map(|rule| rule.to_string().into());
        Ruling::denied(DecisionReason::DenyRule, rule)
    }

    /// What rules about the host do not allow: those of the tables, if there are any, are about other ports or the other protocol.
    fn elsewhere<'a>(&self, tables: impl Iterator<Item = &'a PortTable>, or: DecisionReason) -> Ruling {
        let first = tables.filter_map(PortTable::first).min().and_then(|number| self.rules.allow.get(number));
        match first {
            Some(rule) => Ruling::denied(DecisionReason::PortNotAllowed, Some(rule.to_string().into())),
            None => Ruling::denied(or, None),
        }
    }

    /// What no rule allows: the default is about TCP only.
    fn by_default_of(
        &self,
        protocol: Protocol,
        denied: Option<usize>,
        refused: impl FnOnce() -> Ruling,
    ) -> Ruling {
        match (denied, protocol) {
            (None, Protocol::Udp) => refused(),
            (denied, _) => self.by_default(denied, refused),
        }
    }

    fn by_default(&self, denied: Option<usize>, refused: impl FnOnce() -> Ruling) -> Ruling {
        match (denied, self.rules.otherwise) {
            (Some(rule), _) => self.by_deny_rule(rule),
            (None, Otherwise::Allow) => Ruling::allowed(DecisionReason::Default, None),
            (None, Otherwise::Deny) => refused(),
        }
    }
}

/// Whether a rule of this range means an address of this class in it.
fn means(range: Cidr, class: AddressClass) -> bool {
    match class {
        AddressClass::Public => true,
        AddressClass::Private(block) => block.covers(&range),
        AddressClass::Forbidden => false,
    }
}

fn side<'a>(rules: impl Iterator<Item = (usize, &'a Target, &'a PortSet)>) -> Side {
    let mut grouped: BTreeMap<&Target, Vec<(usize, &PortSet)>> = BTreeMap::new();
    for (number, to, ports) in rules {
        grouped.entry(to).or_default().push((number, ports));
    }
    let (mut exact, mut below, mut ranges) = (HashMap::new(), HashMap::new(), HashMap::new());
    for (to, rules) in grouped {
        let table = PortTable::new(rules);
        match to {
            Target::Name(NamePattern::Exact(name)) => drop(exact.insert(name.clone(), table)),
            Target::Name(NamePattern::Below(name)) => drop(below.insert(name.clone(), table)),
            Target::Cidr(range) => drop(ranges.insert(*range, table)),
        }
    }
    Side { names: NameTable::new(exact, below), ranges: RangeTable::new(ranges) }
}
