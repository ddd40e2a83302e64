use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};
use sandbar_core::Hostname;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::nameservers::{self, RESOLV_CONF};
use super::{Answer, Resolve};

/// How long one server may take for one question.
const ATTEMPT: Duration = Duration::from_secs(2);
/// How often each server is asked.
const ROUNDS: usize = 2;
/// How long an address of version 6 is waited for when those of version 4 are there.
const GRACE: Duration = Duration::from_millis(50);
/// Size of a datagram that passes everywhere (DNS flag day 2020).
const PAYLOAD: u16 = 1232;
/// Aliases that are followed.
const ALIASES: usize = 16;
/// Addresses of a name that are looked at.
const ADDRESSES: usize = 32;

/// Asks the host's name servers, and nothing else: no hosts file, no search domains.
#[derive(Debug)]
pub(crate) struct Upstream {
    source: Source,
}

#[derive(Debug)]
enum Source {
    File(PathBuf),
    #[cfg(test)]
    Servers(Vec<SocketAddr>),
}

/// What one server said about one kind of address.
type Said = Result<(Vec<IpAddr>, u32), String>;

impl Upstream {
    /// The servers of the host's configuration, as it is at each question.
    pub(crate) fn of_host() -> Self {
        Self { source: Source::File(RESOLV_CONF.into()) }
    }

    #[cfg(test)]
    pub(crate) fn of_servers(servers: Vec<SocketAddr>) -> Self {
        Self { source: Source::Servers(servers) }
    }

    fn servers(&self) -> Result<Vec<SocketAddr>, String> {
        match &self.source {
            Source::File(path) => nameservers::read(path),
            #[cfg(test)]
            Source::Servers(servers) => Ok(servers.clone()),
        }
    }
}

#[async_trait]
impl Resolve for Upstream {
    async fn resolve(&self, name: &Hostname) -> Result<Answer, String> {
        let servers = self.servers()?;
        let asked = Name::from_ascii(format!("{name}.")).map_err(|error| error.to_string())?;
        let v4 = ask(&servers, &asked, RecordType::A);
        let v6 = ask(&servers, &asked, RecordType::AAAA);
        tokio::pin!(v4, v6);
        let (v4, v6) = tokio::select! {
            v4 = &mut v4 => {
                let grace = if v4.as_ref().is_ok_and(|(found, _)| !found.is_empty()) { GRACE } else { ATTEMPT };
                let v6 = timeout(grace, v6).await;
                (v4, v6.unwrap_or_else(|_| Err("no name server answered".to_owned())))
            }
            v6 = &mut v6 => (v4.await, v6),
        };
        let mut addresses = Vec::new();
        let mut ttl = u32::MAX;
        let mut why = "the name has no address".to_owned();
        for said in [v4, v6] {
            match said {
                Ok((found, holds)) if !found.is_empty() => {
                    addresses.extend(found);
                    ttl = ttl.min(holds);
                }
                Ok(_) => {}
                Err(cause) => why = cause,
            }
        }
        if addresses.is_empty() {
            Err(why)
        } else {
            Ok(Answer { addresses, ttl: Duration::from_secs(ttl.into()) })
        }
    }
}

async fn ask(servers: &[SocketAddr], name: &Name, kind: RecordType) -> Said {
    let mut why = "no name server answered".to_owned();
    for server in servers.iter().cycle().take(servers.len() * ROUNDS) {
        match timeout(ATTEMPT, exchange(*server, name, kind)).await {
            Ok(Ok(message)) => match message.metadata.response_code {
                ResponseCode::NoError => return Ok(addresses(&message, name, kind)),
                ResponseCode::NXDomain => return Err("the name does not exist".to_owned()),
                code => why = format!("name server `{}` answered: {code}", server.ip()),
            },
            Ok(Err(error)) => why = format!("ask name server `{}`: {error}", server.ip()),
            Err(_) => why = format!("name server `{}` did not answer in time", server.ip()),
        }
    }
    Err(why)
}

/// A question and its answer: from a port of its own, so that an answer is hard to guess; by TCP where a datagram has no room.
async fn exchange(server: SocketAddr, name: &Name, kind: RecordType) -> io::Result<Message> {
    let mut question = Message::query();
    question.metadata.recursion_desired = true;
    question.add_query(Query::query(name.clone(), kind));
    let mut edns = Edns::new();
    edns.set_max_payload(PAYLOAD);
    question.set_edns(edns);
    let bytes = question.to_vec().map_err(io::Error::other)?;

    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    socket.connect(server).await?;
    socket.send(&bytes).await?;
    let mut buffer = vec![0; usize::from(PAYLOAD)];
    loop {
        let length = socket.recv(&mut buffer).await?;
        match Message::from_vec(&buffer[..length]) {
            Ok(answer) if answers(&answer, &question) && answer.metadata.truncation => break,
            Ok(answer) if answers(&answer, &question) => return Ok(answer),
            // Not an answer to this: it may be on its way still.
            _ => {}
        }
    }
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), &*bytes].concat()).await?;
    let length = stream.read_u16().await?;
    let mut buffer = vec![0; length.into()];
    stream.read_exact(&mut buffer).await?;
    let answer = Message::from_vec(&buffer).map_err(io::Error::other)?;
    if answers(&answer, &question) { Ok(answer) } else { Err(io::Error::other("it answered something else")) }
}

fn answers(answer: &Message, question: &Message) -> bool {
    answer.metadata.id == question.metadata.id
        && answer.metadata.message_type == MessageType::Response
        && answer.metadata.op_code == OpCode::Query
        && answer.queries == question.queries
}

/// Addresses of the name or of what it is an alias of, and how long they hold.
fn addresses(message: &Message, name: &Name, kind: RecordType) -> (Vec<IpAddr>, u32) {
    let mut owners = HashSet::from([name.to_lowercase()]);
    let mut ttl = u32::MAX;
    for _ in 0..ALIASES {
        let before = owners.len();
        for record in &message.answers {
            if let RData::CNAME(alias) = &record.data
                && owners.contains(&record.name.to_lowercase())
                && owners.insert(alias.0.to_lowercase())
            {
                ttl = ttl.min(record.ttl);
            }
        }
        if owners.len() == before {
            break;
        }
    }
    let mut found = Vec::new();
    for record in message.answers.iter().filter(|record| record.dns_class == DNSClass::IN) {
        let address = match &record.data {
            RData::A(address) if kind == RecordType::A => IpAddr::V4(address.0),
            RData::AAAA(address) if kind == RecordType::AAAA => IpAddr::V6(address.0),
            _ => continue,
        };
        if owners.contains(&record.name.to_lowercase()) && found.len() < ADDRESSES {
            found.push(address);
            ttl = ttl.min(record.ttl);
        }
    }
    (found, ttl)
}
