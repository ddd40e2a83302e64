//! What of egress policies this backend can enforce.

use std::collections::BTreeSet;

use sandbar_core::{Cidr, EgressPolicy, EgressRules, ErrorKind, Otherwise, Protocol, Result, Target};
use sandbar_egress::{AddressClass, classify};

use crate::config::BACKEND;
use crate::error::fail;
use crate::home::SealedPolicy;

/// Ports of UDP rules that a sandbox can have: each takes a socket, and those are made with the sandbox.
pub(crate) const MAX_UDP_PORTS: usize = sandbar_engine::network::UDP_SOCKETS;

/// Refuses what can't be enforced, and takes the rest as it is passed on.
pub(crate) fn seal(operation: &'static str, policy: EgressPolicy) -> Result<SealedPolicy> {
    policy.check(operation).map_err(|error| error.with_backend(BACKEND))?;
    if let EgressPolicy::Rules(rules) = &policy {
        check(operation, rules)?;
    }
    SealedPolicy::seal(policy).ok_or_else(|| {
        let message = "a rule injects a header whose value is not known";
        fail(ErrorKind::InvalidInput, operation, message).with_hint(
            "a policy that was read back has the names of its headers only: give their values again",
        )
    })
}

fn check(operation: &'static str, rules: &EgressRules) -> Result<()> {
    let unsupported = |rule: String, why: &str, hint: &str| {
        let what = format!("egress rule `{rule}`");
        sandbar_core::Error::unsupported(operation, what, why.to_owned())
            .with_backend(BACKEND)
            .with_hint(hint)
    };
    for rule in &rules.allow {
        if let Target::Cidr(cidr) = rule.to
            && cidr.network().is_ipv6()
        {
            let why = "a sandbox here has addresses of version 4 only";
            return Err(unsupported(
                rule.to_string(),
                why,
                "allow the hosts by name: a name leads to addresses of both versions",
            ));
        }
    }
    for rule in &rules.allow {
        if let Target::Cidr(cidr) = rule.to
            && is_never_reached(cidr)
        {
            let message = format!(
                "egress rule `{rule}`: no policy reaches these addresses, which are the host's own, link-local, metadata or reserved ones"
            );
            return Err(fail(ErrorKind::InvalidInput, operation, message)
                .with_hint("publish a port of the host's service elsewhere, or leave the rule out"));
        }
    }
    for rule in &rules.deny {
        if rules.otherwise == Otherwise::Allow && matches!(rule.to, Target::Name(_)) {
            let why = "where all public addresses are allowed, the host can be reached by its address";
            return Err(unsupported(
                rule.to_string(),
                why,
                "deny its addresses, or allow only what is needed",
            ));
        }
    }
    let udp = rules.allow.iter().filter(|rule| rule.protocol == Protocol::Udp);
    let mut ports = BTreeSet::new();
    for rule in udp {
        for port in rule.ports.ranges().flatten() {
            ports.insert(port);
            if ports.len() > MAX_UDP_PORTS {
                let why = format!("rules for UDP may name {MAX_UDP_PORTS} ports in all");
                return Err(unsupported(rule.to_string(), &why, "name only the ports that are needed"));
            }
        }
    }
    Ok(())
}

/// Whether a range lies wholly in what no rule can mean. A wide one has other addresses too.
fn is_never_reached(cidr: Cidr) -> bool {
    /// The widest of the reserved blocks of version 4 (`224.0.0.0/4`, `240.0.0.0/4`).
    const WIDEST: u8 = 4;
    let is_forbidden = |address| classify(address) == AddressClass::Forbidden;
    cidr.prefix_len() >= WIDEST && is_forbidden(cidr.network()) && is_forbidden(cidr.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(allow: &[&str], deny: &[&str], otherwise: Otherwise) -> String {
        let allow = allow.iter().map(|rule| rule.parse().unwrap()).collect();
        let deny = deny.iter().map(|rule| rule.parse().unwrap()).collect();
        let error = seal("create", EgressPolicy::rules(allow, deny, otherwise)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        error.to_string()
    }

    #[test]
    fn what_can_not_be_enforced_is_refused_by_its_rule() {
        for (allow, deny, otherwise, rule) in [
            (&["[2001:db8::/32]:443"][..], &[][..], Otherwise::Deny, "[2001:db8::/32]:443"),
            (&[], &["a.test"], Otherwise::Allow, "a.test"),
            (&["a.test:53/udp", "b.test:1000-1020/udp"], &[], Otherwise::Deny, "b.test:1000-1020/udp"),
        ] {
            let text = refused(allow, deny, otherwise);
            assert!(text.contains(rule), "{text}");
        }
        for rule in ["127.0.0.0/8", "169.254.169.254", "100.100.100.200:80", "224.0.0.0/4:any"] {
            let error = seal("create", EgressPolicy::allow([rule]).unwrap()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{rule}");
        }
        let fine = EgressPolicy::allow(["0.0.0.0/0", "10.0.0.0/8", "100.64.0.0/10", "1.1.1.1"]).unwrap();
        seal("create", fine).unwrap();
        let fine = EgressPolicy::rules(
            vec!["a.test:1-65535".parse().unwrap(), "a.test:53/udp".parse().unwrap()],
            vec!["a.test".parse().unwrap()],
            Otherwise::Deny,
        );
        seal("create", fine).unwrap();
    }
}
