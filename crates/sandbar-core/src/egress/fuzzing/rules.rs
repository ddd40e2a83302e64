use std::net::IpAddr;

use crate::{Cidr, DenyRule, EgressRule, NamePattern, PortSet, Protocol, Target};

/// Rules, ports and ranges as people write them: what was read is written so that it reads the same, and means what its text says.
pub fn egress_rule(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let allow = text.parse::<EgressRule>();
    if let Ok(rule) = &allow {
        assert_eq!(rule.to_string().parse::<EgressRule>().as_ref().ok(), Some(rule), "{rule}");
        assert_eq!(rule.protocol == Protocol::Udp, text.ends_with("/udp"), "{rule}");
        assert!(rule.inject.is_empty());
        target(&rule.to, text);
        ports(&rule.ports);
    }
    let deny = text.parse::<DenyRule>();
    if let Ok(rule) = &deny {
        assert_eq!(rule.to_string().parse::<DenyRule>().as_ref().ok(), Some(rule), "{rule}");
        target(&rule.to, text);
        ports(&rule.ports);
        // What is denied can be written as allowed, and is about the same hosts.
        assert_eq!(allow.as_ref().ok().map(|rule| &rule.to), Some(&rule.to), "{rule}");
    }
    for message in [allow.err(), deny.err()].into_iter().flatten().map(|error| error.message().to_owned()) {
        assert!(!message.chars().any(char::is_control), "{message:?}");
        assert!(message.len() < 4096, "{} bytes of message", message.len());
    }
    if let Ok(set) = PortSet::parse(text) {
        ports(&set);
    }
    if let Ok(cidr) = Cidr::parse(text) {
        range(&cidr);
    }
}

fn target(to: &Target, text: &str) {
    // Nobody means a host by what comes before an `@` or behind a `/`.
    assert!(!text.contains(['@', '\0', '\n', ' ']), "{to} of {text:?}");
    match to {
        Target::Name(pattern) => {
            assert_eq!(NamePattern::parse(&pattern.to_string()).as_ref().ok(), Some(pattern));
            assert!(pattern.to_string().parse::<IpAddr>().is_err(), "{pattern}");
        }
        Target::Cidr(cidr) => range(cidr),
    }
}

fn ports(set: &PortSet) {
    assert_eq!(PortSet::parse(&set.to_string()).as_ref().ok(), Some(set));
    assert!(!set.contains(0) && set.count() > 0);
    let mut before = 0;
    for ports in set.ranges() {
        // Rising, and with a gap: each set has one form.
        assert!(
            ports.start() <= ports.end() && (before == 0 || u32::from(*ports.start()) > before + 1),
            "{set}"
        );
        assert!(set.contains(*ports.start()) && set.contains(*ports.end()));
        before = u32::from(*ports.end());
    }
}

fn range(cidr: &Cidr) {
    assert_eq!(Cidr::parse(&cidr.to_string()).as_ref().ok(), Some(cidr));
    let (first, last) = (cidr.network(), cidr.last());
    assert!(cidr.contains(first) && cidr.contains(last) && cidr.covers(cidr));
    assert_eq!(Cidr::around(last, cidr.prefix_len()).as_ref(), Some(cidr));
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let ((first, width), (last, _)) = (bits(first), bits(last));
    let free = width - u32::from(cidr.prefix_len());
    assert_eq!(last - first, 1u128.checked_shl(free).unwrap_or(0).wrapping_sub(1), "{cidr}");
}
