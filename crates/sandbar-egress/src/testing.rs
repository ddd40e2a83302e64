//! A gateway of which sandbox and outside are on loopback. What it judges is the same; only the ends are others.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use sandbar_core::{Decision, DecisionReason, EgressPolicy, EgressRule, Hostname, Otherwise};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::event::DecisionSink;
use crate::gateway::{Gateway, Options, Sockets};
use crate::limits::Limits;
use crate::names::Journal;
use crate::pool::Assignment;
use crate::resolve::{Answer, Resolve};
use crate::seams::{Network, Origin, Seams};

/// How long anything here may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A gateway, and what stands round it.
pub(crate) struct Bench {
    pub(crate) gateway: Gateway,
    pub(crate) outside: Arc<Outside>,
    pub(crate) told: Arc<Told>,
    pub(crate) journal: Arc<Book>,
    pub(crate) dns_udp: SocketAddr,
    pub(crate) dns_tcp: SocketAddr,
    tcp: SocketAddr,
    origins: Arc<Origins>,
}

/// The world: names, hosts on loopback that stand for public ones, and what was asked and dialled.
#[derive(Default)]
pub(crate) struct Outside {
    zone: Mutex<HashMap<Hostname, Vec<IpAddr>>>,
    hosts: Mutex<HashMap<SocketAddr, SocketAddr>>,
    own: Mutex<Vec<IpAddr>>,
    asked: Mutex<Vec<Hostname>>,
    dialled: Mutex<Vec<SocketAddr>>,
}

#[derive(Default)]
struct Origins(Mutex<HashMap<SocketAddr, SocketAddrV4>>);

/// Decisions that were told.
#[derive(Default)]
pub(crate) struct Told(Mutex<Vec<Decision>>);

/// Assignments that were written down; breaks when it is told so.
#[derive(Default)]
pub(crate) struct Book {
    pub(crate) kept: Mutex<Vec<Assignment>>,
    pub(crate) breaks: Mutex<bool>,
}

/// Rules of these texts, and nothing else.
pub(crate) fn rules(texts: &[&str]) -> EgressPolicy {
    EgressPolicy::allow(texts.iter().copied()).unwrap()
}

/// Everything public, but for these.
pub(crate) fn all_but(denied: &[&str]) -> EgressPolicy {
    let denied = denied.iter().map(|rule| rule.parse().unwrap()).collect();
    EgressPolicy::rules(Vec::<EgressRule>::new(), denied, Otherwise::Allow)
}

pub(crate) fn name(text: &str) -> Hostname {
    Hostname::parse(text).unwrap()
}

impl Bench {
    pub(crate) async fn start(policy: EgressPolicy) -> Self {
        Self::with(policy, Limits::default(), Vec::new(), Vec::new()).await
    }

    pub(crate) async fn limited(policy: EgressPolicy, limits: Limits) -> Self {
        Self::with(policy, limits, Vec::new(), Vec::new()).await
    }

    pub(crate) async fn with(
        policy: EgressPolicy,
        limits: Limits,
        assigned: Vec<Assignment>,
        udp: Vec<OwnedFd>,
    ) -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dns_udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let dns_tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses =
            (tcp.local_addr().unwrap(), dns_udp.local_addr().unwrap(), dns_tcp.local_addr().unwrap());
        let sockets = Sockets {
            tcp: tcp.into_std().unwrap().into(),
            dns_udp: dns_udp.into_std().unwrap().into(),
            dns_tcp: dns_tcp.into_std().unwrap().into(),
            udp,
        };
        let (outside, origins) = (Arc::new(Outside::default()), Arc::new(Origins::default()));
        let (told, journal) = (Arc::new(Told::default()), Arc::new(Book::default()));
        let options = Options {
            policy,
            limits,
            assigned,
            journal: journal.clone(),
            sink: told.clone(),
            interception: None,
        };
        let seams = Seams { origin: origins.clone(), resolver: outside.clone(), network: outside.clone() };
        let gateway = Gateway::start_on(sockets, options, seams).unwrap();
        let (tcp, dns_udp, dns_tcp) = addresses;
        Self { gateway, outside, told, journal, dns_udp, dns_tcp, tcp, origins }
    }

    /// The address that the resolver gives for a name.
    pub(crate) fn lookup(&self, text: &str) -> Option<Ipv4Addr> {
        let answer = crate::dns::Responder::new(self.gateway.state().clone());
        let mut question = hickory_proto::op::Message::query();
        let asked = hickory_proto::rr::Name::from_ascii(text).unwrap();
        question.add_query(hickory_proto::op::Query::query(asked, hickory_proto::rr::RecordType::A));
        let bytes = answer.answer(&question.to_vec().unwrap())?;
        let answer = hickory_proto::op::Message::from_vec(&bytes).unwrap();
        answer.answers.iter().find_map(|record| match record.data {
            hickory_proto::rr::RData::A(address) => Some(address.0),
            _ => None,
        })
    }

    /// A connection of the sandbox to an address.
    pub(crate) async fn connect(&self, to: Ipv4Addr, port: u16) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let from = socket.local_addr().unwrap();
        self.origins.0.lock().unwrap().insert(from, SocketAddrV4::new(to, port));
        socket.connect(self.tcp).await.unwrap()
    }

    /// A connection of the sandbox to a name that it has looked up.
    pub(crate) async fn connect_to(&self, text: &str, port: u16) -> TcpStream {
        let address = self.lookup(text).expect("the name has an address");
        self.connect(address, port).await
    }

    /// Waits for a decision with this reason, and takes all of them.
    pub(crate) async fn decision(&self, reason: DecisionReason) -> Decision {
        let found = async {
            loop {
                if let Some(found) = self.told.0.lock().unwrap().iter().find(|d| d.reason == reason) {
                    return found.clone();
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let found = timeout(PATIENCE, found).await.ok();
        found.unwrap_or_else(|| panic!("no decision `{reason:?}` among {:#?}", self.told.all()))
    }

    /// Waits until nothing is open.
    pub(crate) async fn quiet(&self) {
        let quiet = async {
            while self.gateway.counters().open > 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(PATIENCE, quiet).await.unwrap();
    }
}

impl Outside {
    /// Lets a name lead to addresses.
    pub(crate) fn name(&self, text: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.zone.lock().unwrap().insert(name(text), addresses);
    }

    /// A host at a public address, where a listener on loopback stands for it.
    pub(crate) async fn host(&self, at: &str) -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.hosts.lock().unwrap().insert(at.parse().unwrap(), listener.local_addr().unwrap());
        listener
    }

    /// A host of datagrams.
    pub(crate) async fn datagrams(&self, at: &str) -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        self.hosts.lock().unwrap().insert(at.parse().unwrap(), socket.local_addr().unwrap());
        socket
    }

    pub(crate) fn own(&self, address: &str) {
        self.own.lock().unwrap().push(address.parse().unwrap());
    }

    /// Names that were resolved outside.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(ToString::to_string).collect()
    }

    /// Addresses that were dialled.
    pub(crate) fn dialled(&self) -> Vec<String> {
        self.dialled.lock().unwrap().iter().map(ToString::to_string).collect()
    }

    fn stand_in(&self, to: SocketAddr) -> io::Result<SocketAddr> {
        self.dialled.lock().unwrap().push(to);
        self.hosts.lock().unwrap().get(&to).copied().ok_or(io::ErrorKind::ConnectionRefused.into())
    }
}

#[async_trait]
impl Resolve for Outside {
    async fn resolve(&self, name: &Hostname) -> Result<Answer, String> {
        self.asked.lock().unwrap().push(name.clone());
        let addresses = self.zone.lock().unwrap().get(name).cloned().ok_or("the name does not exist")?;
        Ok(Answer { addresses, ttl: Duration::ZERO })
    }
}

#[async_trait]
impl Network for Outside {
    async fn tcp(&self, to: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(self.stand_in(to)?).await
    }

    async fn udp(&self, to: SocketAddr) -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        socket.connect(self.stand_in(to)?).await?;
        Ok(socket)
    }

    fn is_own(&self, address: IpAddr) -> io::Result<bool> {
        Ok(self.own.lock().unwrap().contains(&address))
    }
}

impl Origin for Origins {
    fn of(&self, stream: &TcpStream) -> io::Result<SocketAddrV4> {
        let from = stream.peer_addr()?;
        self.0.lock().unwrap().get(&from).copied().ok_or(io::ErrorKind::NotFound.into())
    }

    /// A datagram to `127.x.y.z` stands for one to `198.18+x.y.z`.
    fn of_datagram(&self, to: Ipv4Addr) -> Ipv4Addr {
        let [_, second, third, fourth] = to.octets();
        Ipv4Addr::new(198, 18 + second, third, fourth)
    }
}

impl DecisionSink for Told {
    fn tell(&self, decision: Decision) {
        self.0.lock().unwrap().push(decision);
    }
}

impl Told {
    pub(crate) fn all(&self) -> Vec<Decision> {
        self.0.lock().unwrap().clone()
    }
}

impl Journal for Book {
    fn assigned(&self, assignment: &Assignment) -> io::Result<()> {
        if *self.breaks.lock().unwrap() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.kept.lock().unwrap().push(assignment.clone());
        Ok(())
    }
}
