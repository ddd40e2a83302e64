//! The policy as its sentences say it, slowly: what the compiled one is compared with.

use std::cmp::Reverse;

use sandbar_core::{
    Cidr, DecisionReason, Destination, EgressPolicy, EgressRule, Hostname, NamePattern, Otherwise, Protocol,
    Target,
};

/// Reason, and the rule's number among those that allow or deny.
pub(super) fn decide(
    policy: &EgressPolicy,
    destination: &Destination,
    port: u16,
    protocol: Protocol,
) -> (DecisionReason, Option<String>) {
    let (allow, deny, otherwise) = match policy {
        EgressPolicy::Rules(rules) => (rules.allow.clone(), rules.deny.clone(), rules.otherwise),
        EgressPolicy::AllowAll => (Vec::new(), Vec::new(), Otherwise::Allow),
        _ => (Vec::new(), Vec::new(), Otherwise::Deny),
    };
    let private = match destination {
        Destination::Address(address) => {
            let blocks = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"];
            blocks.iter().map(|block| Cidr::parse(block).unwrap()).find(|block| block.contains(*address))
        }
        Destination::Name(_) => None,
    };
    if let Destination::Address(address) = destination {
        let never = [
            "127.0.0.0/8",
            "169.254.0.0/16",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "198.18.0.0/15",
            "100.100.100.200/32",
            "224.0.0.0/3",
        ];
        if never.iter().any(|block| Cidr::parse(block).unwrap().contains(*address)) {
            return (DecisionReason::ForbiddenAddress, None);
        }
    }
    let counts = |rule: &EgressRule| match (&rule.to, private) {
        (Target::Cidr(range), Some(block)) => block.covers(range),
        _ => true,
    };
    let about: Vec<(usize, &EgressRule)> = allow
        .iter()
        .enumerate()
        .filter(|(_, rule)| is_about(&rule.to, destination) && counts(rule))
        .collect();
    let fitting = about.iter().filter(|(_, rule)| rule.protocol == protocol && rule.ports.contains(port));
    let best = fitting
        .min_by_key(|(number, rule)| (Reverse(specificity(&rule.to)), rule.inject.is_empty(), *number));
    if let Some((_, rule)) = best {
        return (DecisionReason::Rule, Some(rule.to_string()));
    }
    let denied = deny
        .iter()
        .enumerate()
        .filter(|(_, rule)| is_about(&rule.to, destination) && rule.ports.contains(port))
        .min_by_key(|(number, rule)| (Reverse(specificity(&rule.to)), *number));
    if let Some((_, rule)) = denied {
        return (DecisionReason::DenyRule, Some(rule.to_string()));
    }
    if otherwise == Otherwise::Allow && protocol == Protocol::Tcp && private.is_none() {
        return (DecisionReason::Default, None);
    }
    if let Some((_, rule)) = about.first() {
        return (DecisionReason::PortNotAllowed, Some(rule.to_string()));
    }
    if private.is_some() {
        return (DecisionReason::ForbiddenAddress, None);
    }
    (DecisionReason::NotAllowed, None)
}

fn is_about(to: &Target, destination: &Destination) -> bool {
    match (to, destination) {
        (Target::Name(NamePattern::Exact(exact)), Destination::Name(name)) => exact == name,
        (Target::Name(NamePattern::Below(suffix)), Destination::Name(name)) => is_below(name, suffix),
        (Target::Cidr(range), Destination::Address(address)) => range.contains(*address),
        _ => false,
    }
}

fn is_below(name: &Hostname, suffix: &Hostname) -> bool {
    let (name, suffix): (Vec<_>, Vec<_>) = (name.labels().rev().collect(), suffix.labels().rev().collect());
    name.len() > suffix.len() && name[..suffix.len()] == suffix[..]
}

/// Greater is more specific.
fn specificity(to: &Target) -> (usize, usize) {
    match to {
        Target::Name(NamePattern::Exact(_)) => (1, 0),
        Target::Name(NamePattern::Below(suffix)) => (0, suffix.labels().count()),
        Target::Cidr(range) => (0, usize::from(range.prefix_len())),
    }
}
