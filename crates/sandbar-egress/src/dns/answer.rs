use std::net::Ipv4Addr;

use hickory_proto::op::{Edns, Message, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::rdata::{A, SOA};
use hickory_proto::rr::{Name, RData, Record};

/// How long a program may keep an answer, in seconds. An address stands for its name for ever; a name that is denied may be allowed soon.
const TTL: u32 = 60;
/// How long it may keep that there is none.
const NEGATIVE_TTL: u32 = 1;
/// Size of a datagram that is taken (DNS flag day 2020).
const PAYLOAD: u16 = 1232;
/// Option of an extended error (RFC 8914).
const EXTENDED_ERROR: u16 = 15;

/// Code of an extended error (RFC 8914, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum ExtendedError {
    Other = 0,
    Filtered = 17,
    NotSupported = 21,
}

/// An answer to `question`, without anything in it.
pub(super) fn empty(question: &Message, code: ResponseCode) -> Message {
    let mut answer = Message::error_msg(question.metadata.id, question.metadata.op_code, code);
    answer.metadata.recursion_desired = question.metadata.recursion_desired;
    answer.metadata.checking_disabled = question.metadata.checking_disabled;
    answer.metadata.recursion_available = true;
    if let [query] = question.queries.as_slice() {
        answer.add_query(query.clone());
    }
    if question.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(PAYLOAD);
        answer.set_edns(edns);
    }
    answer
}

/// With the address.
pub(super) fn address(question: &Message, name: Name, address: Ipv4Addr) -> Message {
    let mut answer = empty(question, ResponseCode::NoError);
    answer.add_answer(Record::from_rdata(name, TTL, RData::A(A(address))));
    answer
}

/// Without what was asked for; `why` is told to those who understand extended errors.
pub(super) fn without(
    question: &Message,
    name: &Name,
    code: ResponseCode,
    why: Option<(ExtendedError, String)>,
) -> Message {
    let mut answer = empty(question, code);
    if code == ResponseCode::NoError || code == ResponseCode::NXDomain {
        let soa = SOA::new(Name::root(), Name::root(), 1, 3600, 600, 86_400, NEGATIVE_TTL);
        answer.add_authority(Record::from_rdata(name.clone(), NEGATIVE_TTL, RData::SOA(soa)));
    }
    if let (Some(edns), Some((code, text))) = (&mut answer.edns, why) {
        let option = [&(code as u16).to_be_bytes(), text.as_bytes()].concat();
        edns.options_mut().insert(EdnsOption::Unknown(EXTENDED_ERROR, option));
    }
    answer
}
