use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sandbar_core::{Destination, Protocol};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout_at};

use crate::buffers;
use crate::dial::{DialError, Dialer};
use crate::flows::Track;
use crate::ruling::Ruling;
use crate::state::State;

/// Addresses of a name that are tried.
const TRIES: usize = 6;
/// How long one address may take while others are left.
const ATTEMPT: Duration = Duration::from_secs(3);

/// The way out of one flow: asks the policy about each address before anything is sent to it.
pub(crate) struct Way {
    state: Arc<State>,
    track: Arc<Track>,
    to: Destination,
    port: u16,
    protocol: Protocol,
}

impl Way {
    pub(crate) fn new(
        state: Arc<State>,
        track: Arc<Track>,
        to: Destination,
        port: u16,
        protocol: Protocol,
    ) -> Self {
        Self { state, track, to, port, protocol }
    }

    /// A socket that exchanges datagrams with the first address that is permitted.
    pub(crate) async fn socket(&self) -> Result<UdpSocket, DialError> {
        let deadline = Instant::now() + self.state.limits.dial;
        for address in self.candidates(deadline).await? {
            if self.may_go_to(address) {
                let to = SocketAddr::new(address, self.port);
                let socket = self.state.seams.network.udp(to).await;
                return socket.map_err(|cause| DialError::Unreachable(Some(address), cause));
            }
        }
        Err(DialError::Unreachable(None, io::ErrorKind::PermissionDenied.into()))
    }

    /// Where it may go, in the order in which it is tried; not empty.
    async fn candidates(&self, deadline: Instant) -> Result<Vec<IpAddr>, DialError> {
        let found = match &self.to {
            Destination::Address(address) => vec![*address],
            Destination::Name(name) => match timeout_at(deadline, self.state.seams.resolver.resolve(name))
                .await
            {
                Ok(Ok(answer)) => answer.addresses,
                Ok(Err(why)) => return Err(DialError::Unresolved(why)),
                Err(_) => return Err(DialError::Unresolved("no name server answered in time".to_owned())),
            },
        };
        let ruling = self.ruling();
        let mut permitted = Vec::new();
        for address in &found {
            if self.is_permitted(&ruling, *address) {
                let own = self.state.seams.network.is_own(*address);
                if !own.map_err(|cause| DialError::Unreachable(Some(*address), cause))? {
                    permitted.push(*address);
                }
            }
        }
        permitted.truncate(TRIES);
        match (permitted.is_empty(), found.first()) {
            (false, _) => Ok(permitted),
            (true, Some(first)) => Err(match self.state.judge().denying(&ruling, *first, self.port) {
                Some(rule) => DialError::DeniedBy(*first, rule),
                None => DialError::Forbidden(*first),
            }),
            (true, None) => Err(DialError::Unresolved("the name has no address".to_owned())),
        }
    }

    /// Whether it may go there by the policy that is in force now. A policy that comes later finds the address on the flow, and cuts it.
    fn may_go_to(&self, address: IpAddr) -> bool {
        self.track.add_address(address);
        self.is_permitted(&self.ruling(), address)
    }

    fn ruling(&self) -> Ruling {
        self.state.judge().decide(&self.to, self.port, self.protocol)
    }

    fn is_permitted(&self, ruling: &Ruling, address: IpAddr) -> bool {
        match self.to {
            Destination::Address(_) => ruling.is_allowed(),
            Destination::Name(_) => self.state.judge().permits(ruling, address, self.port, self.protocol),
        }
    }
}

#[async_trait]
impl Dialer for Way {
    async fn dial(&self) -> Result<TcpStream, DialError> {
        let deadline = Instant::now() + self.state.limits.dial;
        let candidates = self.candidates(deadline).await?;
        let last = candidates.len() - 1;
        let mut failed = DialError::Unreachable(None, io::ErrorKind::TimedOut.into());
        for (index, address) in candidates.into_iter().enumerate() {
            if !self.may_go_to(address) {
                failed = DialError::Unreachable(Some(address), io::ErrorKind::PermissionDenied.into());
                continue;
            }
            let until = if index == last { deadline } else { deadline.min(Instant::now() + ATTEMPT) };
            let connected =
                timeout_at(until, self.state.seams.network.tcp(SocketAddr::new(address, self.port))).await;
            match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(stream) => {
                    // What passes is passed on as it comes. Where that can't be said, it is only slower.
                    drop(stream.set_nodelay(true));
                    buffers::bound(&stream, self.state.flows.count());
                    return Ok(stream);
                }
                Err(cause) => failed = DialError::Unreachable(Some(address), cause),
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        Err(failed)
    }
}
