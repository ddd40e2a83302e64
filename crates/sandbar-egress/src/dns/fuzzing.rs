use std::io;
use std::sync::{Arc, LazyLock};

use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::RData;
use sandbar_core::{Decision, EgressPolicy, Hostname};

use super::responder::Responder;
use crate::control::is_control;
use crate::event::{DecisionSink, Recorder};
use crate::judge::Judge;
use crate::limits::Limits;
use crate::names::{Journal, Names};
use crate::pool::{Assignment, Pool};
use crate::seams::Seams;
use crate::state::State;

/// Largest answer that passes everywhere in one datagram.
const DATAGRAM: usize = 1232;

/// Whatever is asked: an answer is one to the question, small, and gives an address only of the pool and only to a name that the policy allows,
/// as one reads it label by label.
pub(crate) fn dns_message(data: &[u8]) {
    static RESPONDER: LazyLock<Responder> = LazyLock::new(responder);
    let Some(bytes) = RESPONDER.answer(data) else { return };
    assert!(bytes.len() <= DATAGRAM, "an answer has {} bytes", bytes.len());
    let answer = Message::from_vec(&bytes).expect("an answer can be read");
    assert_eq!(answer.metadata.message_type, MessageType::Response);
    assert_eq!(&bytes[..2], &data[..2], "the id is that of the question");
    if answer.metadata.response_code != ResponseCode::NoError {
        assert!(answer.answers.is_empty());
        return;
    }
    let [query] = answer.queries.as_slice() else { panic!("an answer is to one question") };
    let labels: Vec<Vec<u8>> = query.name().iter().map(<[u8]>::to_ascii_lowercase).collect();
    let labels: Vec<&[u8]> = labels.iter().map(Vec::as_slice).collect();
    let is_allowed = match labels.as_slice() {
        [b"allowed", b"test"] | [b"control", b"sandbar", b"internal"] => true,
        [first, .., b"w", b"test"] => !first.is_empty(),
        _ => false,
    };
    assert!(is_allowed, "{} has an answer", query.name());
    for record in &answer.answers {
        let RData::A(address) = &record.data else { panic!("an answer is an address of version 4") };
        let name = Hostname::parse(&query.name().to_string()).expect("what has an address is a host name");
        assert!(Pool::is_synthetic(address.0) && (is_control(&name) || address.0.octets()[2..] != [0, 0]));
    }
}

fn responder() -> Responder {
    let policy = EgressPolicy::allow(["allowed.test", "*.w.test:22"]).expect("a policy");
    let mut limits = Limits::default();
    // What is asked here is asked fast.
    (limits.question_burst, limits.questions_per_second) = (u32::MAX, u32::MAX);
    let pool = Pool::restore(Vec::new(), limits.names).expect("an empty pool");
    let names = Names::new(pool, 0, &limits, Arc::new(Nowhere));
    let judge = Judge::new(&policy).expect("a judge");
    let recorder = Recorder::new(Arc::new(Nowhere));
    Responder::new(Arc::new(State::new(judge, names, limits, recorder, Seams::of_host(), None)))
}

struct Nowhere;

impl Journal for Nowhere {
    fn assigned(&self, _: &Assignment) -> io::Result<()> {
        Ok(())
    }
}

impl DecisionSink for Nowhere {
    fn tell(&self, _: Decision) {}
}
