use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::hostname::shown;
use crate::{Error, Result};

/// A range of addresses: `192.0.2.0/24`, or a single address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr(IpNet);

impl Cidr {
    /// Reads `ADDRESS/BITS`, or an address for it alone. Bits beyond the prefix, and addresses of version 4 written in version 6, are refused: what they
    /// were meant to say can't be known.
    pub fn parse(text: &str) -> Result<Self> {
        let refused =
            |why: String| Error::invalid("parse CIDR", format!("`{}` is not a CIDR: {why}", shown(text)));
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let net = address.parse::<IpAddr>().ok().and_then(|address| match bits {
            None => Some(IpNet::from(address)),
            Some(bits) if bits.bytes().all(|b| b.is_ascii_digit()) => {
                IpNet::new(address, bits.parse().ok()?).ok()
            }
            Some(_) => None,
        });
        let net = net.ok_or_else(|| {
            refused("expected an address and a prefix length, as in `192.0.2.0/24`".to_owned())
        })?;
        if net.trunc() != net {
            return Err(refused(format!("it has bits beyond its prefix; `{}` has none", net.trunc())));
        }
        if let IpNet::V6(v6) = net
            && let Some(v4) = v6.addr().to_ipv4_mapped()
        {
            return Err(refused(format!("it maps the version 4 address `{v4}`; write that instead")));
        }
        Ok(Self(net))
    }

    /// The whole of version 4.
    pub fn all_v4() -> Self {
        Self(IpNet::V4(ipnet::Ipv4Net::default()))
    }

    /// The range of `bits` that `address` is in; none if there are no so many bits.
    pub fn around(address: IpAddr, bits: u8) -> Option<Self> {
        IpNet::new(address.to_canonical(), bits).ok().map(|net| Self(net.trunc()))
    }

    /// The first address.
    pub fn network(&self) -> IpAddr {
        self.0.network()
    }

    /// The last address.
    pub fn last(&self) -> IpAddr {
        self.0.broadcast()
    }

    /// How many bits are fixed.
    pub fn prefix_len(&self) -> u8 {
        self.0.prefix_len()
    }

    /// Whether `address` is in it. One of version 4 written in version 6 is none of version 6.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }

    /// Whether all of `other` is in it.
    pub fn covers(&self, other: &Self) -> bool {
        self.0.contains(&other.0)
    }
}

impl FromStr for Cidr {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Cidr {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

impl From<Cidr> for String {
    fn from(cidr: Cidr) -> Self {
        cidr.to_string()
    }
}

impl From<IpAddr> for Cidr {
    fn from(address: IpAddr) -> Self {
        Self(address.to_canonical().into())
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}
