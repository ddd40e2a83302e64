//! The resolver: answers from what tests published, and writes down every query.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::svcb::{Alpn, EchConfigList, SvcParamKey, SvcParamValue};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, HTTPS, SVCB, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use sandbar_rig::wire::{self, Answer, Outcome, Query};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::ledger::plain;
use crate::state::State;

/// Bytes of an answer over UDP where the query says nothing.
const PLAIN_UDP: u16 = 512;
/// Bytes of an answer over UDP at most.
const LARGE_UDP: u16 = 4096;
/// Aliases followed for one query.
const ALIASES: usize = 16;
/// Bytes of a text record's part.
const TEXT: usize = 255;
/// How long a connection may be silent.
const IDLE: Duration = Duration::from_secs(60);

/// Where a query came from, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) transport: &'static str,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
}

/// The answer to a packet, if it is to have one.
pub(crate) async fn answer(state: &State, packet: &[u8], path: Path) -> Option<Vec<u8>> {
    let Ok(query) = Message::from_vec(packet) else {
        record(state, &path, "", "", "unreadable");
        return None;
    };
    let mut message = Message::response(query.metadata.id, OpCode::Query);
    message.metadata.message_type = MessageType::Response;
    message.metadata.recursion_desired = query.metadata.recursion_desired;
    message.metadata.recursion_available = true;
    message.add_queries(query.queries.iter().cloned());
    let Some(question) = query.queries.first() else {
        record(state, &path, "", "", "no question");
        message.metadata.response_code = ResponseCode::FormErr;
        return message.to_vec().ok();
    };
    // A packet with more questions is odd, and none of them may go unseen.
    for question in &query.queries {
        let asked = question.name().to_ascii();
        record(state, &path, &plain(&asked), &asked, &question.query_type().to_string());
    }
    let delay = fill(state, &mut message, question.name(), question.query_type())?;
    if delay > 0 {
        tokio::time::sleep(Duration::from_millis(delay)).await;
    }
    let mut room = PLAIN_UDP;
    if query.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(LARGE_UDP);
        message.set_edns(edns);
        room = query.max_payload().min(LARGE_UDP);
    }
    let bytes = message.to_vec().ok()?;
    if path.transport == "udp" && bytes.len() > usize::from(room) {
        return message.truncate().to_vec().ok();
    }
    Some(bytes)
}

/// Messages with their length before them.
pub(crate) async fn stream(state: &State, stream: &mut (impl AsyncRead + AsyncWrite + Unpin), path: Path) {
    loop {
        let Ok(Ok(length)) = tokio::time::timeout(IDLE, stream.read_u16()).await else { return };
        let mut packet = vec![0; usize::from(length)];
        let Ok(Ok(_)) = tokio::time::timeout(IDLE, stream.read_exact(&mut packet)).await else { return };
        let Some(bytes) = answer(state, &packet, path).await else { continue };
        let Ok(length) = u16::try_from(bytes.len()) else { return };
        let message = [&length.to_be_bytes()[..], &bytes].concat();
        if stream.write_all(&message).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

/// Puts what was published into the message and answers how long to wait before it is sent; `None` says nothing at all.
fn fill(state: &State, message: &mut Message, name: &Name, kind: RecordType) -> Option<u64> {
    let mut owner = name.clone();
    let mut delay = 0;
    for _ in 0..ALIASES {
        let Some(answer) = state.answer(&plain(&owner.to_ascii()), &kind.to_string()) else {
            message.metadata.response_code = ResponseCode::NXDomain;
            return Some(delay);
        };
        delay += answer.delay;
        match answer.outcome {
            Outcome::Silence => return None,
            Outcome::NxDomain => message.metadata.response_code = ResponseCode::NXDomain,
            Outcome::ServFail => message.metadata.response_code = ResponseCode::ServFail,
            Outcome::Records => {}
        }
        let mut alias = None;
        for data in answer.records.iter().filter_map(data) {
            if let RData::CNAME(target) = &data {
                alias = Some(target.0.clone());
            } else if data.record_type() != kind && kind != RecordType::ANY {
                continue;
            }
            message.add_answer(Record::from_rdata(owner.clone(), ttl(&answer), data));
        }
        match alias {
            Some(target) if kind != RecordType::CNAME => owner = target,
            _ => return Some(delay),
        }
    }
    message.metadata.response_code = ResponseCode::ServFail;
    Some(delay)
}

fn ttl(answer: &Answer) -> u32 {
    answer.ttl
}

fn data(record: &wire::Record) -> Option<RData> {
    Some(match record {
        wire::Record::A(address) => RData::A(A(*address)),
        wire::Record::Aaaa(address) => RData::AAAA(AAAA(*address)),
        wire::Record::Cname(target) => {
            RData::CNAME(CNAME(Name::from_str(&format!("{}.", plain(target))).ok()?))
        }
        wire::Record::Txt(text) => RData::TXT(TXT::from_bytes(text.as_bytes().chunks(TEXT).collect())),
        wire::Record::Https(protocols) => RData::HTTPS(HTTPS(SVCB::new(
            1,
            Name::root(),
            vec![
                (SvcParamKey::Alpn, SvcParamValue::Alpn(Alpn(protocols.clone()))),
                (
                    SvcParamKey::EchConfigList,
                    SvcParamValue::EchConfigList(EchConfigList(b"\0\x04rig!".to_vec())),
                ),
            ],
        ))),
    })
}

fn record(state: &State, path: &Path, name: &str, asked: &str, kind: &str) {
    state.ledger.query(|seq| Query {
        seq,
        name: name.to_owned(),
        asked: asked.to_owned(),
        kind: kind.to_owned(),
        transport: path.transport.to_owned(),
        from: path.from,
        to: path.to,
    });
}
