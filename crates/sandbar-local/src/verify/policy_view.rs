use std::net::IpAddr;

use sandbar_core::{
    Cidr, EgressPolicy, EgressRule, EgressRules, Hostname, NamePattern, Otherwise, Protocol, Target,
};

/// Private blocks (RFC 1918, RFC 6598, RFC 4193): a rule means what is in one only if its range lies wholly within it.
const PRIVATE_BLOCKS: &[&str] =
    &["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"];

/// What a check has to know of a policy: where it allows something, so that this is not taken for a leak. It reads the rules for itself; what the
/// gateway makes of them is what is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolicyView<'a> {
    rules: Option<&'a EgressRules>,
}

/// What shows that a sandbox reaches what it may: a name that a rule spells out, by TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AllowedName {
    /// No rule spells one out.
    None,
    /// Those that there are get headers, so that the gateway speaks for the host: an answer says nothing of that one, and an attempt would tell it a
    /// secret.
    Injected,
    /// At this port.
    At(String, u16),
}

impl<'a> PolicyView<'a> {
    pub(crate) fn of(policy: &'a EgressPolicy) -> Self {
        match policy {
            EgressPolicy::Rules(rules) => Self { rules: Some(rules) },
            // With everything allowed all is tried, and the verdict says that it is open.
            _ => Self { rules: None },
        }
    }

    /// Whether a rule allows the address at the port: then it is no target.
    pub(crate) fn allows_address(self, address: IpAddr, port: u16, protocol: Protocol) -> bool {
        let block = PRIVATE_BLOCKS.iter().filter_map(|block| Cidr::parse(block).ok());
        let block = block.into_iter().find(|block| block.contains(address));
        self.allowed().any(|rule| match &rule.to {
            Target::Cidr(cidr) => {
                rule.protocol == protocol
                    && rule.ports.contains(port)
                    && cidr.contains(address)
                    && block.is_none_or(|block| block.covers(cidr))
            }
            Target::Name(_) => false,
        })
    }

    /// Whether a rule allows the name at some port.
    pub(crate) fn allows_name(self, name: &str) -> bool {
        let Ok(name) = Hostname::parse(name) else { return false };
        self.patterns().any(|pattern| pattern.matches(&name))
    }

    /// Whether a rule allows the name at the port by UDP.
    pub(crate) fn allows_datagrams(self, name: &str, port: u16) -> bool {
        let Ok(name) = Hostname::parse(name) else { return false };
        self.allowed().any(|rule| {
            let is_meant = matches!(&rule.to, Target::Name(pattern) if pattern.matches(&name));
            is_meant && rule.protocol == Protocol::Udp && rule.ports.contains(port)
        })
    }

    /// Whether no rule allows the name, anything below it, or all that is beside it.
    pub(crate) fn is_silent_about(self, name: &str) -> bool {
        let Ok(name) = Hostname::parse(name) else { return false };
        !self.patterns().any(|pattern| match pattern {
            NamePattern::Exact(exact) => *exact == name || exact.is_below(&name),
            NamePattern::Below(suffix) => *suffix == name || suffix.is_below(&name) || name.is_below(suffix),
        })
    }

    /// The first name that a rule allows as it stands, by TCP at `port`, and where the gateway does not speak for the host.
    pub(crate) fn name_at(self, port: u16) -> Option<String> {
        let mut plain = self.spelled().filter(|(_, rule)| rule.inject.is_empty());
        plain.find(|(_, rule)| rule.ports.contains(port)).map(|(name, _)| name.to_string())
    }

    /// The name to try, best where the first words of a connection are known: 443, then 80, then the first port of the first rule.
    pub(crate) fn allowed_name(self) -> AllowedName {
        for port in [443, 80] {
            if let Some(name) = self.name_at(port) {
                return AllowedName::At(name, port);
            }
        }
        let mut is_injected = false;
        for (name, rule) in self.spelled() {
            is_injected |= !rule.inject.is_empty();
            let first = rule.ports.ranges().next().map(|range| *range.start());
            if let (true, Some(port)) = (rule.inject.is_empty(), first) {
                return AllowedName::At(name.to_string(), port);
            }
        }
        if is_injected { AllowedName::Injected } else { AllowedName::None }
    }

    /// Whether what no rule speaks of is allowed.
    pub(crate) fn is_open(self, policy: &EgressPolicy) -> bool {
        matches!(policy, EgressPolicy::AllowAll)
            || self.rules.is_some_and(|rules| rules.otherwise == Otherwise::Allow)
    }

    fn allowed(self) -> impl Iterator<Item = &'a EgressRule> {
        self.rules.into_iter().flat_map(|rules| &rules.allow)
    }

    fn patterns(self) -> impl Iterator<Item = &'a NamePattern> {
        self.allowed().filter_map(|rule| match &rule.to {
            Target::Name(pattern) => Some(pattern),
            Target::Cidr(_) => None,
        })
    }

    fn spelled(self) -> impl Iterator<Item = (&'a Hostname, &'a EgressRule)> {
        self.allowed().filter_map(|rule| match &rule.to {
            Target::Name(NamePattern::Exact(name)) if rule.protocol == Protocol::Tcp => Some((name, rule)),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use sandbar_core::HeaderInjection;

    use super::*;

    fn allows(policy: &EgressPolicy, address: &str, port: u16, protocol: Protocol) -> bool {
        PolicyView::of(policy).allows_address(address.parse().unwrap(), port, protocol)
    }

    #[test]
    fn what_a_rule_allows_is_no_target() {
        let policy =
            EgressPolicy::allow(["a.test", "*.b.test:5432", "1.1.1.0/24:443", "c.test:8443"]).unwrap();
        let view = PolicyView::of(&policy);
        assert!(view.allows_name("a.test") && view.allows_name("x.b.test"));
        assert!(!view.allows_name("b.test") && !view.allows_name("not a name"));
        assert_eq!(view.name_at(443).as_deref(), Some("a.test"));
        assert_eq!(view.name_at(8443).as_deref(), Some("c.test"));
        assert_eq!(view.name_at(5432), None, "a pattern is no name");
        assert!(!view.is_open(&policy));
        let open = EgressPolicy::AllowAll;
        assert!(PolicyView::of(&open).is_open(&open) && !PolicyView::of(&open).allows_name("a.test"));
    }

    #[test]
    fn an_address_is_allowed_at_the_ports_and_by_the_protocol_of_its_rule_alone() {
        let policy =
            EgressPolicy::allow(["0.0.0.0/0:443", "8.8.8.8:123/udp", "10.0.0.0/8:5432", "172.0.0.0/10:80"]);
        let policy = policy.unwrap();
        assert!(allows(&policy, "1.1.1.1", 443, Protocol::Tcp));
        assert!(!allows(&policy, "1.1.1.1", 853, Protocol::Tcp));
        assert!(!allows(&policy, "1.1.1.1", 443, Protocol::Udp));
        assert!(allows(&policy, "8.8.8.8", 123, Protocol::Udp));
        assert!(!allows(&policy, "8.8.8.8", 53, Protocol::Udp));
        // Private ones are meant by a range within their block only.
        assert!(allows(&policy, "10.0.0.5", 5432, Protocol::Tcp));
        assert!(!allows(&policy, "10.0.0.5", 443, Protocol::Tcp));
        assert!(!allows(&policy, "172.17.0.1", 80, Protocol::Tcp));
        assert!(allows(&policy, "172.32.0.1", 80, Protocol::Tcp));
    }

    #[test]
    fn a_name_is_denied_for_certain_only_if_no_rule_is_about_it_or_its_kin() {
        let policy = EgressPolicy::allow(["*.example.com", "www.example.org", "*.net"]).unwrap();
        let view = PolicyView::of(&policy);
        for name in ["example.com", "example.org", "example.net"] {
            assert!(!view.is_silent_about(name), "{name}");
        }
        assert!(view.is_silent_about("iana.org"));
    }

    #[test]
    fn the_name_to_try_is_at_whatever_port_its_rule_has() {
        let at = |rules: &[&str]| {
            let policy = EgressPolicy::allow(rules.iter().copied()).unwrap();
            PolicyView::of(&policy).allowed_name()
        };
        assert_eq!(at(&["*.a.test", "1.1.1.1", "b.test:443/udp"]), AllowedName::None);
        assert_eq!(at(&["*.a.test", "b.test:8443,9000"]), AllowedName::At("b.test".into(), 8443));
        assert_eq!(at(&["a.test:22", "b.test:80"]), AllowedName::At("b.test".into(), 80));
        assert_eq!(at(&["a.test:80", "b.test"]), AllowedName::At("b.test".into(), 443));
        let secret: EgressRule = "a.test:443".parse().unwrap();
        let secret = secret.with_header(HeaderInjection::new("x-key", "v").unwrap());
        let policy = EgressPolicy::rules(vec![secret.clone()], Vec::new(), Otherwise::Deny);
        assert_eq!(PolicyView::of(&policy).allowed_name(), AllowedName::Injected);
        let both = vec![secret, "b.test:22".parse().unwrap()];
        let policy = EgressPolicy::rules(both, Vec::new(), Otherwise::Deny);
        assert_eq!(PolicyView::of(&policy).allowed_name(), AllowedName::At("b.test".into(), 22));
    }
}
