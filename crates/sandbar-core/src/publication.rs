use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// A port inside, and where it shall be reachable from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortPublication {
    /// The port inside, 1 to 65535.
    pub guest: u16,
    /// The address of the host; the backend's own if absent, which nobody but the host can reach where the backend runs on it.
    pub address: Option<IpAddr>,
    /// The port of the host, 1 to 65535; any free one if absent.
    pub port: Option<u16>,
}

impl PortPublication {
    /// Wherever the backend likes.
    pub fn new(guest: u16) -> Self {
        Self { guest, address: None, port: None }
    }

    /// At this address of the host.
    pub fn with_address(mut self, address: IpAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// At this port of the host.
    pub fn with_port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Refuses port 0 on either side.
    pub fn check(&self, operation: &'static str) -> Result<()> {
        if self.guest == 0 {
            return Err(Error::invalid(operation, "port 0 is not valid: expected 1 to 65535"));
        }
        if self.port == Some(0) {
            let error =
                Error::invalid(operation, "port 0 of the host is not valid: expected 1 to 65535, or none");
            return Err(error.with_hint("leave it out for any free one"));
        }
        Ok(())
    }

    /// Refuses a list in which a port of either side is named twice.
    pub fn check_all(operation: &'static str, ports: &[Self]) -> Result<()> {
        ports.iter().try_for_each(|port| port.check(operation))?;
        for (index, one) in ports.iter().enumerate() {
            for other in &ports[..index] {
                if one.guest == other.guest {
                    return Err(Error::invalid(operation, format!("port {} is named twice", one.guest)));
                }
                if let Some(port) =
                    one.port.filter(|_| (one.address, one.port) == (other.address, other.port))
                {
                    return Err(Error::invalid(
                        operation,
                        format!(
                            "ports {} and {} are both to be at port {port} of the host",
                            other.guest, one.guest
                        ),
                    ));
                }
            }
        }
        Ok(())
    }
}

impl From<u16> for PortPublication {
    fn from(guest: u16) -> Self {
        Self::new(guest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_and_doubles_are_refused() {
        let at = |guest, port| PortPublication { port, ..PortPublication::new(guest) };
        let refused = |ports: &[PortPublication]| {
            PortPublication::check_all("create", ports).unwrap_err().message().to_owned()
        };
        assert!(refused(&[at(0, None)]).contains("1 to 65535"));
        assert!(refused(&[at(1, Some(0))]).contains("of the host"));
        assert!(refused(&[at(1, None), at(2, None), at(1, Some(3))]).contains("port 1 is named twice"));
        assert!(refused(&[at(1, Some(3)), at(2, Some(3))]).contains("ports 1 and 2 are both"));
        let loopback = at(2, Some(3)).with_address([127, 0, 0, 1].into());
        assert!(PortPublication::check_all("create", &[at(1, None), at(3, None), loopback]).is_ok());
    }
}
