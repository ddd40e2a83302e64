//! Questions to a resolver, byte by byte: what is tried here is also what no well-behaved library would send.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use super::attempt::{DnsExpect, Question, Raw, Transport};
use super::tcp::is_timeout;
use super::tried::{Outcome, Said, failed};

/// The record type of an address of version 4.
pub(crate) const TYPE_A: u16 = 1;
/// How long a resolver may take. It is asked twice.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How often a question over UDP is sent: a datagram may be lost.
const ROUNDS: usize = 2;
/// The port of resolvers.
const PORT: u16 = 53;
/// Where the resolvers of the place are named.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// Most bytes of a reply.
const MAX_REPLY: usize = 65_535;
/// Most bytes of one label (RFC 1035, 2.3.4); its length has six bits.
const MAX_LABEL: usize = 63;

/// Asks, and says whether there was an answer of the kind that is looked for.
pub(super) fn attempt(
    server: Option<IpAddr>,
    transport: Transport,
    question: &Question,
    expect: DnsExpect,
) -> Said {
    let servers = match server.map_or_else(system_servers, |server| Ok(vec![server])) {
        Ok(servers) => servers,
        Err(said) => return said,
    };
    let mut last = (Outcome::Unclear, format!("no resolver in `{RESOLV_CONF}`"));
    for server in servers {
        last = match ask(server, transport, question) {
            Ok(Some(reply)) => return judge(&reply, expect),
            Ok(None) => (Outcome::Refused, "no answer".to_owned()),
            Err(cause) => failed("ask", &cause),
        };
    }
    last
}

/// The first address that the system's resolver has for `name`; without one, what became of the question.
pub(super) fn resolve(name: &str) -> Result<IpAddr, Said> {
    let question = Question::address(name);
    let mut last = (Outcome::Unclear, format!("no resolver in `{RESOLV_CONF}`"));
    for server in system_servers()? {
        match ask(server, Transport::Udp, &question) {
            Ok(Some(reply)) => {
                return match reply.addresses.first() {
                    Some(address) => Ok(IpAddr::V4(*address)),
                    None => Err((Outcome::Refused, format!("the resolver says {}", reply.word()))),
                };
            }
            // A resolver that is there and says nothing is no refusal of the name.
            Ok(None) => last = (Outcome::Unclear, "the resolver does not answer".to_owned()),
            Err(cause) => last = (Outcome::Unclear, failed("ask the resolver", &cause).1),
        }
    }
    Err(last)
}

fn judge(reply: &Reply, expect: DnsExpect) -> Said {
    let word = reply.word();
    let reached = expect == DnsExpect::Reply || reply.records > 0;
    (if reached { Outcome::Reached } else { Outcome::Refused }, format!("the resolver says {word}"))
}

fn system_servers() -> Result<Vec<IpAddr>, Said> {
    let text = std::fs::read_to_string(RESOLV_CONF)
        .map_err(|cause| (Outcome::Unclear, failed(RESOLV_CONF, &cause).1))?;
    Ok(text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver")?.trim().parse().ok())
        .take(3)
        .collect())
}

/// What a resolver replied.
#[derive(Debug)]
pub(super) struct Reply {
    code: u8,
    records: u16,
    addresses: Vec<Ipv4Addr>,
}

impl Reply {
    fn word(&self) -> String {
        let code = match self.code {
            0 => "`NOERROR`".to_owned(),
            1 => "`FORMERR`".to_owned(),
            2 => "`SERVFAIL`".to_owned(),
            3 => "`NXDOMAIN`".to_owned(),
            4 => "`NOTIMP`".to_owned(),
            5 => "`REFUSED`".to_owned(),
            code => format!("code {code}"),
        };
        format!("{code} with {} records", self.records)
    }
}

/// `None`: nobody answered in time.
fn ask(server: IpAddr, transport: Transport, question: &Question) -> io::Result<Option<Reply>> {
    let id = message_id();
    let message = encode(id, question);
    let to = SocketAddr::new(server, PORT);
    let asked = match transport {
        Transport::Udp => ask_udp(to, id, &message),
        Transport::Tcp => ask_tcp(to, id, &message),
    };
    match asked {
        Err(cause) if is_timeout(&cause) => Ok(None),
        asked => asked,
    }
}

fn ask_udp(to: SocketAddr, id: u16, message: &[u8]) -> io::Result<Option<Reply>> {
    let socket = UdpSocket::bind(unspecified(to))?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = vec![0; MAX_REPLY];
    for _ in 0..ROUNDS {
        socket.send(message)?;
        match socket.recv(&mut buffer) {
            Ok(count) => {
                if let Some(reply) = decode(id, &buffer[..count]) {
                    return Ok(Some(reply));
                }
            }
            Err(cause) if is_timeout(&cause) => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(None)
}

fn ask_tcp(to: SocketAddr, id: u16, message: &[u8]) -> io::Result<Option<Reply>> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let length = u16::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    stream.write_all(&[&length.to_be_bytes()[..], message].concat())?;
    let mut length = [0; 2];
    let read = stream.read_exact(&mut length).and_then(|()| {
        let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut reply).map(|()| reply)
    });
    match read {
        Ok(reply) => Ok(decode(id, &reply)),
        Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(cause) => Err(cause),
    }
}

pub(super) fn unspecified(to: SocketAddr) -> SocketAddr {
    let any: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    SocketAddr::new(any, 0)
}

/// Not to be guessed by nobody: whoever could answer in another's place would have to be inside already.
fn message_id() -> u16 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u16::try_from(now.subsec_nanos() & 0xffff).unwrap_or_default()
}

/// A query with recursion desired. A label that is too long is cut: its length has no room for more.
pub(super) fn encode(id: u16, question: &Question) -> Vec<u8> {
    let mut message = Vec::with_capacity(64);
    message.extend_from_slice(&id.to_be_bytes());
    // Recursion desired; one question.
    message.extend_from_slice(&[0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0]);
    for Raw(label) in &question.labels {
        let label = &label[..label.len().min(MAX_LABEL)];
        message.push(u8::try_from(label.len()).unwrap_or_default());
        message.extend_from_slice(label);
    }
    message.push(0);
    message.extend_from_slice(&question.record.to_be_bytes());
    message.extend_from_slice(&[0, 1]);
    message
}

/// `None` for what is no reply to message `id`. Addresses are read as far as the message goes.
pub(super) fn decode(id: u16, bytes: &[u8]) -> Option<Reply> {
    let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let flags = word(2)?;
    if word(0)? != id || flags & 0x8000 == 0 {
        return None;
    }
    let (questions, records) = (word(4)?, word(6)?);
    let code = u8::try_from(flags & 0xf).unwrap_or_default();
    let mut reply = Reply { code, records, addresses: Vec::new() };
    let mut at = Some(12);
    for _ in 0..questions {
        at = at.and_then(|at| skip_name(bytes, at)).map(|at| at + 4);
    }
    for _ in 0..records {
        let Some(start) = at.and_then(|at| skip_name(bytes, at)) else { break };
        let (Some(kind), Some(length)) = (word(start), word(start + 8)) else { break };
        let data = start + 10;
        if let (TYPE_A, 4, Some([a, b, c, d])) = (kind, length, bytes.get(data..data + 4)) {
            reply.addresses.push(Ipv4Addr::new(*a, *b, *c, *d));
        }
        at = Some(data + usize::from(length));
    }
    Some(reply)
}

/// Where what follows the name starts.
fn skip_name(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            // A pointer ends the name.
            length if length & 0xc0 == 0xc0 => return Some(at + 2),
            length => at += usize::from(length) + 1,
        }
    }
}
