use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use sandbar::{Destination, Hostname};

use crate::value::{Port, ValueError};

/// The port where none is typed: that of HTTPS.
const DEFAULT_PORT: u16 = 443;

/// `HOST[:PORT]` of `egress why`: where a program in a sandbox would want to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EgressPeer {
    pub(crate) host: Destination,
    pub(crate) port: u16,
}

impl FromStr for EgressPeer {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text.contains("://") || text.contains('@') {
            return Err(ValueError::new("expected HOST[:PORT] and not a URL, as `example.com:443`"));
        }
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Ok(Self { host: Destination::Address(address.into()), port: DEFAULT_PORT });
        }
        let (host, port) = split(text)?;
        let port = match port {
            Some(port) => port.parse::<Port>()?.0,
            None => DEFAULT_PORT,
        };
        Ok(Self { host, port })
    }
}

fn split(text: &str) -> Result<(Destination, Option<&str>), ValueError> {
    if let Some(rest) = text.strip_prefix('[') {
        let (inner, after) = rest.split_once(']').ok_or_else(|| ValueError::new("a `]` is missing"))?;
        let address: Ipv6Addr = inner.parse().map_err(|_| {
            ValueError::new("expected an address of version 6 in the brackets, as `[2001:db8::1]:443`")
        })?;
        let port = match after.strip_prefix(':') {
            None if !after.is_empty() => {
                return Err(ValueError::new("expected `:PORT` or nothing after the brackets"));
            }
            port => port,
        };
        return Ok((Destination::Address(address.into()), port));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let host = match host.parse::<IpAddr>() {
        Ok(address) => Destination::Address(address),
        Err(_) => Destination::Name(Hostname::parse(host)?),
    };
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_has_its_meaning() {
        let name = |name: &str| Destination::Name(Hostname::parse(name).unwrap());
        let v6 = Destination::Address("2001:db8::1".parse().unwrap());
        for (text, host, port) in [
            ("example.com", name("example.com"), 443),
            ("Example.COM.:80", name("example.com"), 80),
            ("192.0.2.1", Destination::Address(Ipv4Addr::new(192, 0, 2, 1).into()), 443),
            ("192.0.2.1:53", Destination::Address(Ipv4Addr::new(192, 0, 2, 1).into()), 53),
            ("2001:db8::1", v6.clone(), 443),
            ("[2001:db8::1]", v6.clone(), 443),
            ("[2001:db8::1]:80", v6, 80),
        ] {
            assert_eq!(text.parse(), Ok(EgressPeer { host, port }), "{text}");
        }
    }

    #[test]
    fn the_rest_is_refused_with_the_reason() {
        for (text, part) in [
            ("", "empty"),
            ("https://example.com/", "not a URL"),
            ("*.example.com", "`*`"),
            ("example.com:0", "not a port"),
            ("example.com:", "port"),
            ("2130706433", "is an address"),
            ("[192.0.2.1]:80", "version 6"),
            ("[2001:db8::1", "`]`"),
            ("[2001:db8::1]80", "after the brackets"),
            ("a\0b", "\\u{0}"),
        ] {
            let error = text.parse::<EgressPeer>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(name in "[a-z]{1,9}(\\.[a-z]{1,9}){0,3}", bits in any::<u128>(), port in 1..=u16::MAX) {
            let host = Destination::Name(Hostname::parse(&name).unwrap());
            prop_assert_eq!(format!("{name}:{port}").parse(), Ok(EgressPeer { host, port }));
            let address = Ipv6Addr::from_bits(bits);
            let host = Destination::Address(address.into());
            prop_assert_eq!(format!("[{address}]:{port}").parse(), Ok(EgressPeer { host: host.clone(), port }));
            prop_assert_eq!(address.to_string().parse(), Ok(EgressPeer { host, port: DEFAULT_PORT }));
        }

        #[test]
        fn nothing_panics(text in "\\PC{0,60}") {
            let _ = text.parse::<EgressPeer>();
        }
    }
}
