use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use sandbar_core::{ErrorKind, PortMapping, PortPublication, Result};

use crate::error::{fail, io_error};

/// Where a port is published when nobody says: nobody but this machine can reach it there.
const DEFAULT_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A listener on the host for a port inside. Nobody else gets its address while this lives.
#[derive(Debug)]
pub(super) struct Listener {
    wanted: PortPublication,
    socket: TcpListener,
    mapping: PortMapping,
}

impl Listener {
    /// Listens where `wanted` says.
    pub(super) fn bind(operation: &'static str, wanted: PortPublication) -> Result<Self> {
        let address = SocketAddr::new(wanted.address.unwrap_or(DEFAULT_ADDRESS), wanted.port.unwrap_or(0));
        let bind = || -> io::Result<Self> {
            let socket = TcpListener::bind(address)?;
            socket.set_nonblocking(true)?;
            let bound = socket.local_addr()?;
            let mapping =
                PortMapping { guest: wanted.guest, host: bound.ip().to_string(), port: bound.port() };
            Ok(Self { wanted, socket, mapping })
        };
        bind().map_err(|cause| refused(operation, wanted.guest, address, cause))
    }

    /// Listens where `mapping` says that it was before.
    pub(super) fn again(mapping: &PortMapping) -> Result<Self> {
        let address = mapping.host.parse().map_err(|_| {
            fail(ErrorKind::Config, "adopt", format!("`{}` in the record is no address", mapping.host))
        })?;
        let wanted = PortPublication::new(mapping.guest).with_address(address).with_port(mapping.port);
        Self::bind("adopt", wanted)
    }

    /// The port inside.
    pub(super) fn guest(&self) -> u16 {
        self.mapping.guest
    }

    pub(super) fn mapping(&self) -> &PortMapping {
        &self.mapping
    }

    /// Whether the place was chosen, so that another one will not do.
    pub(super) fn is_chosen(&self) -> bool {
        self.wanted.address.is_some() || self.wanted.port.is_some()
    }

    /// The socket for the event loop.
    pub(super) fn into_socket(self) -> io::Result<tokio::net::TcpListener> {
        tokio::net::TcpListener::from_std(self.socket)
    }
}

/// Whether a port that is published there is where `wanted` says.
pub(super) fn fits(mapping: &PortMapping, wanted: PortPublication) -> bool {
    let address = wanted.address.is_none_or(|address| mapping.host.parse() == Ok(address));
    address && wanted.port.is_none_or(|port| mapping.port == port)
}

fn refused(
    operation: &'static str,
    guest: u16,
    address: SocketAddr,
    cause: io::Error,
) -> sandbar_core::Error {
    let what = format!("port {guest} can't be published at `{address}`");
    let (kind, why, hint) = match cause.kind() {
        io::ErrorKind::AddrInUse => (
            ErrorKind::AlreadyExists,
            "somebody else listens there",
            "choose another port of this machine, or none for any free one",
        ),
        io::ErrorKind::AddrNotAvailable => (
            ErrorKind::InvalidInput,
            "this machine does not have that address",
            "`ip address` shows what it has; `127.0.0.1` is this machine alone, `0.0.0.0` all of its addresses",
        ),
        io::ErrorKind::PermissionDenied => (
            ErrorKind::PermissionDenied,
            "this user may not listen there",
            "choose a port from 1024 up: those below are for root (`net.ipv4.ip_unprivileged_port_start`)",
        ),
        _ => return io_error(operation, &what, cause),
    };
    fail(kind, operation, format!("{what}: {why}"))
        .with_resource(format!("address `{address}`"))
        .with_hint(hint)
        .with_source(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_taken_or_not_there_is_named() {
        let first = Listener::bind("publish", PortPublication::new(80)).unwrap();
        assert!(!first.is_chosen() && first.mapping().host == "127.0.0.1");
        let wanted = PortPublication::new(81).with_port(first.mapping().port);
        let error = Listener::bind("publish", wanted).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        let address = format!("address `127.0.0.1:{}`", first.mapping().port);
        assert_eq!(error.resource(), Some(address.as_str()));
        // TEST-NET-1 is nobody's (RFC 5737).
        let error = Listener::bind("publish", PortPublication::new(81).with_address([192, 0, 2, 1].into()));
        assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn a_mapping_fits_what_was_left_open() {
        let mapping = PortMapping { guest: 80, host: "127.0.0.1".into(), port: 8080 };
        let any = PortPublication::new(80);
        assert!(fits(&mapping, any) && fits(&mapping, any.with_port(8080)));
        assert!(fits(&mapping, any.with_address(DEFAULT_ADDRESS)));
        assert!(!fits(&mapping, any.with_port(8081)));
        assert!(!fits(&mapping, any.with_address([0, 0, 0, 0].into())));
    }
}
