//! What of egress policies this backend can enforce.

use std::collections::BTreeSet;

use sandbar_core::{
    Cidr, EgressPolicy, EgressRule, EgressRules, ErrorKind, NamePattern, Otherwise, Protocol, Result, Target,
};
use sandbar_egress::{AddressClass, classify};
use sandbar_engine::network::DNS_PORT;

use crate::config::BACKEND;
use crate::error::fail;
use crate::home::{MAX_POLICY, SealedPolicy};

/// Ports of UDP rules that a sandbox can have: each takes a socket, and those are made with the sandbox.
pub(crate) const MAX_UDP_PORTS: usize = sandbar_engine::network::UDP_SOCKETS;

/// Refuses what can't be enforced, and takes the rest as it is passed on.
pub(crate) fn seal(operation: &'static str, policy: EgressPolicy) -> Result<SealedPolicy> {
    policy.check(operation).map_err(|error| error.with_backend(BACKEND))?;
    if let EgressPolicy::Rules(rules) = &policy {
        check(operation, rules)?;
    }
    let sealed = SealedPolicy::seal(policy).ok_or_else(|| {
        let message = "a rule injects a header whose value is not known";
        fail(ErrorKind::InvalidInput, operation, message).with_hint(
            "a policy that was read back has the names of its headers only: give their values again",
        )
    })?;
    let size = sealed.size();
    if size > MAX_POLICY {
        let message =
            format!("the egress policy takes {size} bytes with its headers, more than {MAX_POLICY}");
        return Err(fail(ErrorKind::InvalidInput, operation, message)
            .with_hint("put names below one domain into one rule, as in `*.example.com`, with one header for all of them"));
    }
    Ok(sealed)
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
    for rule in &rules.allow {
        never_holds(operation, rule)?;
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
    for rule in udp.clone() {
        if rule.ports.contains(DNS_PORT) {
            let why = format!("UDP port {DNS_PORT} is the sandbox's own resolver's");
            let hint = "leave it out: names that a rule allows are resolved without it";
            return Err(unsupported(rule.to_string(), &why, hint));
        }
    }
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

/// Refuses a rule that allows nothing of what it seems to.
fn never_holds(operation: &'static str, rule: &EgressRule) -> Result<()> {
    let refused = |why: String, hint: String| {
        let message = format!("egress rule `{rule}`: {why}");
        Err(fail(ErrorKind::InvalidInput, operation, message).with_hint(hint))
    };
    match &rule.to {
        Target::Name(NamePattern::Exact(name) | NamePattern::Below(name)) if name.is_local() => refused(
            "this name means the sandbox itself wherever a program asks for it, and no policy reaches this host by it"
                .to_owned(),
            "leave the rule out: a sandbox reaches its own loopback under every policy".to_owned(),
        ),
        Target::Cidr(cidr) => {
            let mut ends = [cidr.network(), cidr.last()].into_iter();
            let block = ends.find_map(|address| match classify(address) {
                AddressClass::Private(block) if !block.covers(cidr) => Some(block),
                _ => None,
            });
            let Some(block) = block else { return Ok(()) };
            refused(
                format!("it begins or ends in the private block `{block}`, of which only a range that lies within means anything"),
                format!("allow `{block}`, or a part of it, by itself, and the public addresses beside it by ranges of their own"),
            )
        }
        Target::Name(_) => Ok(()),
    }
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
            (&["a.test:53/udp"], &[], Otherwise::Deny, "a.test:53/udp"),
            (&["a.test:443/udp", "10.1.2.0/24:50-60/udp"], &[], Otherwise::Deny, "10.1.2.0/24:50-60/udp"),
            (&["a.test:54/udp", "b.test:1000-1020/udp"], &[], Otherwise::Deny, "b.test:1000-1020/udp"),
        ] {
            let text = refused(allow, deny, otherwise);
            assert!(text.contains(rule), "{text}");
        }
        for rule in ["127.0.0.0/8", "169.254.169.254", "100.100.100.200:80", "224.0.0.0/4:any"] {
            let error = seal("create", EgressPolicy::allow([rule]).unwrap()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{rule}");
        }
        for (rule, why) in [
            ("localhost", "the sandbox itself"),
            ("*.localhost:8080", "the sandbox itself"),
            ("db.localhost", "the sandbox itself"),
            ("192.168.0.0/15", "`192.168.0.0/16`"),
            ("10.0.0.0/7:any", "`10.0.0.0/8`"),
            ("100.0.0.0/9", "`100.64.0.0/10`"),
            ("172.16.0.0/12", ""),
        ] {
            let sealed = seal("create", EgressPolicy::allow([rule]).unwrap());
            if why.is_empty() {
                sealed.unwrap();
                continue;
            }
            let error = sealed.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{rule}");
            assert!(error.to_string().contains(rule) && error.to_string().contains(why), "{error}");
        }
        // What has private blocks in its midst means the public rest.
        seal("create", EgressPolicy::allow(["8.0.0.0/6", "172.0.0.0/8", "192.0.0.0/2"]).unwrap()).unwrap();
        let fine = EgressPolicy::allow(["0.0.0.0/0", "10.0.0.0/8", "100.64.0.0/10", "1.1.1.1"]).unwrap();
        seal("create", fine).unwrap();
        let fine = EgressPolicy::rules(
            vec!["a.test:1-65535".parse().unwrap(), "a.test:443/udp".parse().unwrap()],
            vec!["a.test".parse().unwrap()],
            Otherwise::Deny,
        );
        seal("create", fine).unwrap();
    }

    #[test]
    fn one_that_no_shim_would_read_is_refused_by_its_size() {
        let header = sandbar_core::HeaderInjection::new("x-key", "v".repeat(8 << 10)).unwrap();
        let rule =
            |n| format!("n{n}.test").parse::<sandbar_core::EgressRule>().unwrap().with_header(header.clone());
        let policy = |count| EgressPolicy::rules((0..count).map(rule).collect(), Vec::new(), Otherwise::Deny);
        seal("create", policy(1400)).unwrap();
        let error = seal("create", policy(1600)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("12582912") && !format!("{error:?}").contains("vvv"), "{error}");
    }
}
