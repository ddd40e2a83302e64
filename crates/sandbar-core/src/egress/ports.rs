use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::hostname::shown;
use crate::{Error, Result};

/// Most ranges in one set.
const MAX_RANGES: usize = 64;

/// What carries a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP, only where a rule says so.
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// Ports, in rising order and without overlap. By default 80 and 443, those of HTTP and HTTPS.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortSet(Vec<(u16, u16)>);

impl PortSet {
    /// Every port.
    pub fn any() -> Self {
        Self(vec![(1, u16::MAX)])
    }

    /// One port, not 0.
    pub fn one(port: u16) -> Result<Self> {
        Self::of([port..=port])
    }

    /// The union of ranges; none may be empty or hold 0.
    pub fn of(ranges: impl IntoIterator<Item = RangeInclusive<u16>>) -> Result<Self> {
        let mut sorted = Vec::new();
        for range in ranges {
            let (first, last) = range.into_inner();
            if first == 0 || first > last {
                return Err(refused(
                    &format!("{first}-{last}"),
                    "expected ports from 1 to 65535, the lower one first",
                ));
            }
            sorted.push((first, last));
        }
        sorted.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::with_capacity(sorted.len());
        for (first, last) in sorted {
            match merged.last_mut() {
                Some(before) if u32::from(first) <= u32::from(before.1) + 1 => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        if merged.is_empty() || merged.len() > MAX_RANGES {
            return Err(refused("", &format!("expected 1 to {MAX_RANGES} ranges")));
        }
        Ok(Self(merged))
    }

    /// Reads `443`, `80,443`, `8000-8100`, or `any`.
    pub fn parse(text: &str) -> Result<Self> {
        if text == "any" {
            return Ok(Self::any());
        }
        let number = |part: &str| {
            let plain = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| part.parse::<u16>().ok()).flatten().filter(|port| *port != 0)
        };
        let ranges = text.split(',').map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (number(first), number(last)) {
                (Some(first), Some(last)) if first <= last => Ok(first..=last),
                _ => Err(refused(
                    text,
                    "expected ports from 1 to 65535, as `443`, `80,443`, `8000-8100` or `any`",
                )),
            }
        });
        Self::of(ranges.collect::<Result<Vec<_>>>()?)
    }

    /// Whether `port` is in it.
    pub fn contains(&self, port: u16) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&port))
    }

    /// Its ranges, rising.
    pub fn ranges(&self) -> impl Iterator<Item = RangeInclusive<u16>> + '_ {
        self.0.iter().map(|(first, last)| *first..=*last)
    }

    /// How many ports are in it.
    pub fn count(&self) -> usize {
        self.0.iter().map(|(first, last)| usize::from(*last - *first) + 1).sum()
    }
}

fn refused(text: &str, why: &str) -> Error {
    Error::invalid("parse ports", format!("`{}` are no ports: {why}", shown(text)))
}

impl Default for PortSet {
    fn default() -> Self {
        Self(vec![(80, 80), (443, 443)])
    }
}

impl FromStr for PortSet {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl TryFrom<String> for PortSet {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

impl From<PortSet> for String {
    fn from(ports: PortSet) -> Self {
        ports.to_string()
    }
}

impl fmt::Display for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::any() {
            return f.write_str("any");
        }
        for (index, (first, last)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}
