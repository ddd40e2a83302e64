use std::str::FromStr;

use sandbar::{DenyRule, EgressRule, Target};

use crate::value::ValueError;

/// `HOST[:PORTS][/udp]` of `--allow`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AllowRule(pub(crate) EgressRule);

/// `CIDR[:PORTS][/udp]` of `--allow-cidr`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AllowRange(pub(crate) EgressRule);

/// `CIDR[:PORTS]` of `--deny-cidr`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DenyRange(pub(crate) DenyRule);

impl FromStr for AllowRule {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "*" {
            return Err(ValueError::new("for every public address there is `--allow-all`"));
        }
        Ok(Self(text.parse()?))
    }
}

impl FromStr for AllowRange {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let rule: EgressRule = text.parse()?;
        match rule.to {
            Target::Cidr(_) => Ok(Self(rule)),
            Target::Name(_) => Err(not_a_range("a name goes to `--allow`")),
        }
    }
}

impl FromStr for DenyRange {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let rule: DenyRule = text.parse()?;
        match rule.to {
            Target::Cidr(_) => Ok(Self(rule)),
            Target::Name(_) => Err(not_a_range("a name is denied by not allowing it")),
        }
    }
}

fn not_a_range(instead: &str) -> ValueError {
    ValueError::new(format!("expected a range of addresses, as `192.0.2.0/24:443`; {instead}"))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;
    use sandbar::PortSet;

    use super::*;

    #[test]
    fn each_takes_its_own_kind() {
        for text in
            ["example.com:80,443", "*.example.com:8443", "192.0.2.0/24:5432", "dns.example.com:53/udp"]
        {
            assert_eq!(text.parse::<AllowRule>().unwrap().0.to_string(), text);
        }
        assert_eq!("[2001:db8::/32]:443".parse::<AllowRange>().unwrap().0.to_string(), "[2001:db8::/32]:443");
        assert_eq!("10.0.0.0/8".parse::<DenyRange>().unwrap().0.ports, PortSet::any());
        assert_eq!("example.com".parse::<AllowRule>().unwrap().0.ports, PortSet::default());
    }

    #[test]
    fn the_rest_is_refused_with_the_way_out() {
        let refused = |error: ValueError, part: &str| assert!(error.to_string().contains(part), "{error}");
        refused("*".parse::<AllowRule>().unwrap_err(), "`--allow-all`");
        refused("https://example.com/".parse::<AllowRule>().unwrap_err(), "URL");
        refused("192.0.2.1/24".parse::<AllowRule>().unwrap_err(), "bits beyond its prefix");
        refused("example.com".parse::<AllowRange>().unwrap_err(), "`--allow`");
        refused("example.com".parse::<DenyRange>().unwrap_err(), "by not allowing it");
        refused("10.0.0.0/8:53/udp".parse::<DenyRange>().unwrap_err(), "53/udp");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bits in any::<u32>(), prefix in 0..=32u32, port in 1..=u16::MAX) {
            let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            let text = format!("{}/{prefix}:{port}", Ipv4Addr::from_bits(bits & mask));
            prop_assert_eq!(text.parse::<AllowRange>().unwrap().0.to_string(), text.clone());
            prop_assert_eq!(text.parse::<DenyRange>().unwrap().0.to_string(), text);
        }

        #[test]
        fn nothing_panics(text in "\\PC{0,60}") {
            let _ = text.parse::<AllowRule>();
            let _ = text.parse::<AllowRange>();
            let _ = text.parse::<DenyRange>();
        }
    }
}
