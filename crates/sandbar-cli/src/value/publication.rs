use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use sandbar::PortPublication;

use crate::value::{Port, ValueError};

/// `[[ADDR:]HOSTPORT:]PORT` of `--publish`: a port inside and where it goes on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Publication(pub(crate) PortPublication);

/// `ADDR` of `--listen`: an address of the host, a port of it, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listen {
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: Option<u16>,
}

impl FromStr for Publication {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (place, guest) = match text.rsplit_once(':') {
            None => (None, text),
            Some((place, guest)) => (Some(place), guest),
        };
        let Port(guest) = guest.parse()?;
        let publication = PortPublication::new(guest);
        let Some(place) = place else { return Ok(Self(publication)) };
        let (address, port) = match place.rsplit_once(':') {
            None => (None, place),
            Some((address, port)) => (Some(address_before_port(address)?), port),
        };
        Ok(Self(PortPublication { address, port: host_port(port)?, ..publication }))
    }
}

impl FromStr for Listen {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if let Ok(address) = parse_address(text) {
            return Ok(Self { address: Some(address), port: None });
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(Self { address: None, port: host_port(text)? });
        }
        match text.rsplit_once(':') {
            Some((address, port)) => {
                Ok(Self { address: Some(address_before_port(address)?), port: host_port(port)? })
            }
            None => Err(not_an_address(text)),
        }
    }
}

impl Listen {
    /// The place for a port inside.
    pub(crate) fn publication(self, guest: Port) -> PortPublication {
        PortPublication { guest: guest.0, address: self.address, port: self.port }
    }
}

/// A port of the host; 0 is any.
fn host_port(text: &str) -> Result<Option<u16>, ValueError> {
    let number = if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse::<u16>().ok() } else { None };
    match number {
        Some(0) => Ok(None),
        Some(port) => Ok(Some(port)),
        None => Err(ValueError::new(format!(
            "`{text}` is not a port of this machine: expected a number from 1 to 65535, or 0 for any"
        ))),
    }
}

fn parse_address(text: &str) -> Result<IpAddr, ValueError> {
    if text == "localhost" {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    match inner {
        Some(inner) => inner.parse().map(IpAddr::V6).map_err(|_| not_an_address(text)),
        None => text.parse().map_err(|_| not_an_address(text)),
    }
}

/// Before a port an address of version 6 stands in brackets: its own colons would leave open where it ends.
fn address_before_port(text: &str) -> Result<IpAddr, ValueError> {
    match parse_address(text)? {
        IpAddr::V6(address) if !text.starts_with('[') => {
            Err(ValueError::new(format!("`{text}` needs brackets before a port: expected `[{address}]`")))
        }
        address => Ok(address),
    }
}

fn not_an_address(text: &str) -> ValueError {
    ValueError::new(format!(
        "`{text}` is not an address: expected one such as 127.0.0.1, 0.0.0.0 or [::1], not a host name"
    ))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_has_its_meaning() {
        let any = PortPublication::new(80);
        for (text, meant) in [
            ("80", any),
            ("0:80", any),
            ("8080:80", any.with_port(8080)),
            ("127.0.0.1:0:80", any.with_address(Ipv4Addr::LOCALHOST.into())),
            ("localhost:8080:80", any.with_address(Ipv4Addr::LOCALHOST.into()).with_port(8080)),
            ("[::1]:8080:80", any.with_address(Ipv6Addr::LOCALHOST.into()).with_port(8080)),
        ] {
            assert_eq!(text.parse(), Ok(Publication(meant)), "{text}");
        }
        for (text, address, port) in [
            ("8080", None, Some(8080)),
            ("0", None, None),
            ("0.0.0.0", Some(Ipv4Addr::UNSPECIFIED.into()), None),
            ("0.0.0.0:80", Some(Ipv4Addr::UNSPECIFIED.into()), Some(80)),
            ("::1", Some(Ipv6Addr::LOCALHOST.into()), None),
            ("[::1]:80", Some(Ipv6Addr::LOCALHOST.into()), Some(80)),
        ] {
            assert_eq!(text.parse(), Ok(Listen { address, port }), "{text}");
        }
    }

    #[test]
    fn the_rest_is_refused_with_the_reason() {
        for (text, part) in [
            ("", "not a port"),
            ("0", "1 to 65535"),
            ("80:0", "1 to 65535"),
            ("80:", "not a port"),
            (":80", "not a port of this machine"),
            ("65536:80", "not a port of this machine"),
            ("+1:80", "not a port of this machine"),
            ("example.com:1:80", "not a host name"),
            ("1.2.3:1:80", "not an address"),
            ("::1:80:80", "needs brackets"),
        ] {
            let error = text.parse::<Publication>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        for text in ["", "example.com", "[127.0.0.1]", "1.2.3.4:", ":80", "99999"] {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(guest in 1..=u16::MAX, port in 1..=u16::MAX, bits in any::<u32>()) {
            let address = Ipv4Addr::from_bits(bits);
            let meant = PortPublication::new(guest).with_address(address.into()).with_port(port);
            prop_assert_eq!(format!("{address}:{port}:{guest}").parse(), Ok(Publication(meant)));
        }

        #[test]
        fn nothing_panics(text in ".*") {
            let _ = text.parse::<Publication>();
            let _ = text.parse::<Listen>();
        }
    }
}
