use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use sandbar_core::{Error, Result};
use tokio::net::UdpSocket;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::packet;
use super::receive::receive;
use crate::gateway::datagrams;
use crate::judge::Judge;
use crate::state::State;

/// Datagram sockets of the sandbox. One that has got a port keeps it: what comes there is judged by the policy of that moment.
pub(crate) struct UdpPorts {
    /// Sockets that there were at the start. That some are taken away inside makes no policy one that can't be asked for.
    most: usize,
    free: Vec<OwnedFd>,
    /// Those that a gateway before this bound.
    bound: HashMap<u16, OwnedFd>,
    serving: HashMap<u16, Arc<UdpSocket>>,
    own: Own,
    tasks: JoinSet<()>,
    /// The gateway's. Whoever changes the policy may be another's.
    runtime: Handle,
}

/// Ports that the gateway has: what comes from one is the gateway's own, or pretends to be, and would be answered for ever.
#[derive(Clone, Debug, Default)]
pub(super) struct Own(Arc<Mutex<BTreeSet<u16>>>);

/// Ports that can't be had.
#[derive(Debug)]
pub(crate) struct Lacking {
    pub(crate) ports: BTreeSet<u16>,
    /// Why the first of them can't.
    pub(crate) cause: io::Error,
}

impl UdpPorts {
    /// Serves in the current runtime, whoever asks for it.
    pub(crate) fn new(sockets: Vec<OwnedFd>) -> io::Result<Self> {
        let mut ports = Self {
            most: sockets.len(),
            free: Vec::new(),
            bound: HashMap::new(),
            serving: HashMap::new(),
            own: Own::default(),
            tasks: JoinSet::new(),
            runtime: Handle::current(),
        };
        for socket in sockets {
            let own = SocketAddrV4::try_from(rustix::net::getsockname(&socket)?)?;
            match own.port() {
                0 => ports.free.push(socket),
                port => drop(ports.bound.insert(port, socket)),
            }
        }
        Ok(ports)
    }

    /// Whether there are as many sockets as the rules for UDP of this policy name ports, whoever has them. An error says which rule is too much.
    pub(crate) fn check(&self, judge: &Judge) -> Result<()> {
        let most = self.most;
        judge.udp_ports(most).map(drop).map_err(|port| {
            let rule = judge.udp_rule(port).unwrap_or_default();
            let why = format!(
                "rules for UDP can name {most} ports over a sandbox's life, and this one names one more"
            );
            Error::unsupported("serve UDP rules", format!("rule `{rule}`"), why)
        })
    }

    /// Serves each port that a rule for UDP of this policy names, but for those that can't be had: a program inside may have bound one first, and
    /// one that was served once keeps its socket.
    pub(crate) fn serve(&mut self, state: &Arc<State>, judge: &Judge) -> Option<Lacking> {
        // Sockets are of the gateway's runtime too.
        let runtime = self.runtime.clone();
        let _runtime = runtime.enter();
        let mut lacking: Option<Lacking> = None;
        for port in judge.udp_ports(self.most).unwrap_or_default() {
            if self.serving.contains_key(&port) {
                continue;
            }
            match self.socket(port) {
                Ok(socket) => {
                    self.own.add(port);
                    self.serving.insert(port, socket.clone());
                    let work = receive(state.clone(), socket, port, self.own.clone());
                    self.tasks.spawn_on(work, &self.runtime);
                }
                Err(cause) => {
                    let lacking = lacking.get_or_insert(Lacking { ports: BTreeSet::new(), cause });
                    lacking.ports.insert(port);
                }
            }
        }
        lacking
    }

    fn socket(&mut self, port: u16) -> io::Result<Arc<UdpSocket>> {
        let fd = match self.bound.remove(&port) {
            Some(bound) => bound,
            None => self.bind(port)?,
        };
        let socket = datagrams(fd)?;
        packet::tell_destinations(&socket)?;
        Ok(Arc::new(socket))
    }

    fn bind(&mut self, port: u16) -> io::Result<OwnedFd> {
        while let Some(free) = self.free.pop() {
            match rustix::net::bind(&free, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)) {
                Ok(()) => return Ok(free),
                // It has a port already, which it was given inside.
                Err(Errno::INVAL) => {}
                Err(error) => {
                    self.free.push(free);
                    return Err(error.into());
                }
            }
        }
        Err(io::Error::other("no socket is left for it"))
    }
}

impl Own {
    fn add(&self, port: u16) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(port);
    }

    pub(super) fn has(&self, port: u16) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&port)
    }
}
