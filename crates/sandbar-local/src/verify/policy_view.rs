use std::net::IpAddr;

use sandbar_core::{EgressPolicy, EgressRules, Hostname, NamePattern, Otherwise, Protocol, Target};

/// What a check has to know of a policy: where it allows something, so that this is not taken for a leak.
#[derive(Debug)]
pub(crate) struct PolicyView<'a> {
    rules: Option<&'a EgressRules>,
}

impl<'a> PolicyView<'a> {
    pub(crate) fn of(policy: &'a EgressPolicy) -> Self {
        match policy {
            EgressPolicy::Rules(rules) => Self { rules: Some(rules) },
            // With everything allowed all is tried, and the verdict says that it is open.
            _ => Self { rules: None },
        }
    }

    /// Whether a rule allows the address at some port: such an address is no target.
    pub(crate) fn allows_address(&self, address: IpAddr) -> bool {
        self.allowed().any(|(target, ..)| matches!(target, Target::Cidr(cidr) if cidr.contains(address)))
    }

    /// Whether a rule allows the name at some port.
    pub(crate) fn allows_name(&self, name: &str) -> bool {
        let Ok(name) = Hostname::parse(name) else { return false };
        self.allowed().any(|(target, ..)| matches!(target, Target::Name(pattern) if pattern.matches(&name)))
    }

    /// The first name that a rule allows as it stands, by TCP at `port`, and where the gateway does not speak for the host.
    pub(crate) fn name_at(&self, port: u16) -> Option<String> {
        let rules = self.rules?;
        rules.allow.iter().find_map(|rule| match &rule.to {
            Target::Name(NamePattern::Exact(name))
                if rule.protocol == Protocol::Tcp && rule.inject.is_empty() && rule.ports.contains(port) =>
            {
                Some(name.to_string())
            }
            _ => None,
        })
    }

    /// Whether what no rule speaks of is allowed.
    pub(crate) fn is_open(&self, policy: &EgressPolicy) -> bool {
        matches!(policy, EgressPolicy::AllowAll)
            || self.rules.is_some_and(|rules| rules.otherwise == Otherwise::Allow)
    }

    fn allowed(&self) -> impl Iterator<Item = (&Target, Protocol)> {
        self.rules.into_iter().flat_map(|rules| &rules.allow).map(|rule| (&rule.to, rule.protocol))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_rule_allows_is_no_target() {
        let policy =
            EgressPolicy::allow(["a.test", "*.b.test:5432", "1.1.1.0/24:443", "c.test:8443"]).unwrap();
        let view = PolicyView::of(&policy);
        assert!(view.allows_address("1.1.1.1".parse().unwrap()));
        assert!(!view.allows_address("8.8.8.8".parse().unwrap()));
        assert!(view.allows_name("a.test") && view.allows_name("x.b.test"));
        assert!(!view.allows_name("b.test") && !view.allows_name("not a name"));
        assert_eq!(view.name_at(443).as_deref(), Some("a.test"));
        assert_eq!(view.name_at(8443).as_deref(), Some("c.test"));
        assert_eq!(view.name_at(5432), None, "a pattern is no name");
        assert!(!view.is_open(&policy));
        let open = EgressPolicy::AllowAll;
        assert!(PolicyView::of(&open).is_open(&open) && !PolicyView::of(&open).allows_name("a.test"));
    }
}
