use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use sandbar_core::{Error, ErrorKind, Result};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use super::packet;
use super::receive::receive;
use crate::gateway::datagrams;
use crate::judge::Judge;
use crate::state::State;

/// Datagram sockets of the sandbox. One that has got a port keeps it: what comes there is judged by the policy of that moment.
pub(crate) struct UdpPorts {
    free: Vec<OwnedFd>,
    /// Those that a gateway before this bound.
    bound: HashMap<u16, OwnedFd>,
    serving: HashMap<u16, Arc<UdpSocket>>,
    tasks: JoinSet<()>,
}

impl UdpPorts {
    pub(crate) fn new(sockets: Vec<OwnedFd>) -> io::Result<Self> {
        let mut ports =
            Self { free: Vec::new(), bound: HashMap::new(), serving: HashMap::new(), tasks: JoinSet::new() };
        for socket in sockets {
            let own = SocketAddrV4::try_from(rustix::net::getsockname(&socket)?)?;
            match own.port() {
                0 => ports.free.push(socket),
                port => drop(ports.bound.insert(port, socket)),
            }
        }
        Ok(ports)
    }

    /// Serves each port that a rule for UDP of this policy names. An error says which rule has no socket, and changes nothing.
    pub(crate) fn serve(&mut self, state: &Arc<State>, judge: &Judge) -> Result<()> {
        const OPERATION: &str = "serve UDP rules";
        let most = self.free.len() + self.bound.len() + self.serving.len();
        let wanted = judge.udp_ports(most).map_err(|port| no_room(OPERATION, judge, port, most))?;
        let is_new = |port: &&u16| !self.serving.contains_key(port) && !self.bound.contains_key(port);
        if let Some(port) = wanted.iter().filter(is_new).nth(self.free.len()) {
            return Err(no_room(OPERATION, judge, *port, most));
        }
        for port in wanted {
            if self.serving.contains_key(&port) {
                continue;
            }
            let failed = |cause: io::Error| {
                let message = format!("UDP port {port} of the sandbox can't be bound");
                Error::new(ErrorKind::Unavailable, OPERATION, message)
                    .with_hint("a program in the sandbox may have bound it")
                    .with_source(cause)
            };
            let socket = self.socket(port).map_err(failed)?;
            self.serving.insert(port, socket.clone());
            self.tasks.spawn(receive(state.clone(), socket, port));
        }
        Ok(())
    }

    fn socket(&mut self, port: u16) -> io::Result<Arc<UdpSocket>> {
        let fd = if let Some(bound) = self.bound.remove(&port) {
            bound
        } else {
            let free = self.free.pop().ok_or(io::ErrorKind::NotFound)?;
            if let Err(error) = rustix::net::bind(&free, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)) {
                self.free.push(free);
                return Err(error.into());
            }
            free
        };
        let socket = datagrams(fd)?;
        packet::tell_destinations(&socket)?;
        Ok(Arc::new(socket))
    }
}

fn no_room(operation: &'static str, judge: &Judge, port: u16, most: usize) -> Error {
    let rule = judge.udp_rule(port).unwrap_or_default();
    let why =
        format!("rules for UDP can name {most} ports over a sandbox's life, and this one names one more");
    Error::unsupported(operation, format!("rule `{rule}`"), why)
}
