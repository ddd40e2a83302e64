use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RecordType};
use sandbar_core::{Decision, DecisionKind, DecisionReason, Hostname, Verdict};

use super::answer::{self, ExtendedError};
use crate::budget::Budget;
use crate::event::decision;
use crate::judge::NameRuling;
use crate::names::NoAddress;
use crate::state::State;

/// Bytes before the first question (RFC 1035, section 4.1.1).
const HEADER: usize = 12;
/// Bytes of a name that is no host name which a decision shows.
const SHOWN: usize = 100;

/// Answers questions by the policy alone.
pub(crate) struct Responder {
    state: Arc<State>,
    questions: Mutex<Budget>,
}

impl Responder {
    pub(crate) fn new(state: Arc<State>) -> Self {
        let limits = &state.limits;
        let second = Duration::from_secs(1);
        let questions =
            Budget::new(limits.question_burst, limits.questions_per_second, second, Instant::now());
        Self { state, questions: Mutex::new(questions) }
    }

    /// The answer to a message, if it deserves any.
    pub(crate) fn answer(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let answer = match Message::from_vec(bytes) {
            Ok(question) => self.reply(&question)?,
            Err(_) => malformed(bytes)?,
        };
        answer.to_vec().ok()
    }

    fn reply(&self, question: &Message) -> Option<Message> {
        // An answer to an answer would go round for ever.
        if question.metadata.message_type != MessageType::Query {
            return None;
        }
        self.state.recorder.asked();
        if !self.questions.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now()) {
            self.tell(Verdict::Denied, DecisionReason::Limit, |told| Decision {
                detail: Some("questions per second".to_owned()),
                ..told
            });
            return Some(answer::empty(question, ResponseCode::Refused));
        }
        if question.metadata.op_code != OpCode::Query {
            return Some(answer::empty(question, ResponseCode::NotImp));
        }
        let [query] = question.queries.as_slice() else {
            return Some(answer::empty(question, ResponseCode::FormErr));
        };
        if query.query_class() != DNSClass::IN || question.signature.is_some() {
            return Some(answer::empty(question, ResponseCode::Refused));
        }
        Some(self.about(question, query.name(), query.query_type()))
    }

    fn about(&self, question: &Message, asked: &Name, kind: RecordType) -> Message {
        let Some(name) = hostname(asked) else {
            self.tell(Verdict::Denied, DecisionReason::NotAHostname, |told| Decision {
                name: Some(shown(asked)),
                ..told
            });
            return answer::without(
                question,
                asked,
                ResponseCode::NXDomain,
                Some(filtered(DecisionReason::NotAHostname)),
            );
        };
        let NameRuling { ruling, spelled } = self.state.judge().serves(&name);
        let about = |told: Decision| Decision {
            name: Some(name.to_string()),
            rule: ruling.rule.as_deref().map(ToOwned::to_owned),
            ..told
        };
        // Addresses have no names here: whom they belong to outside is nobody's business.
        let is_reverse = name.labels().next_back() == Some("arpa");
        if !ruling.is_allowed() || is_reverse {
            let reason = if ruling.is_allowed() { DecisionReason::RecordNotServed } else { ruling.reason };
            self.tell(Verdict::Denied, reason, about);
            return answer::without(question, asked, ResponseCode::NXDomain, Some(filtered(reason)));
        }
        match kind {
            RecordType::A => match self.state.names.address(&name, spelled) {
                Ok(address) => {
                    self.tell(Verdict::Allowed, ruling.reason, |told| Decision {
                        address: Some(address.into()),
                        ..about(told)
                    });
                    answer::address(question, asked.clone(), address)
                }
                Err(why) => self.no_address(question, asked, &why, about),
            },
            // Most programs ask for both: that there is no other is no denial.
            RecordType::AAAA => answer::without(question, asked, ResponseCode::NoError, None),
            kind => {
                self.tell(Verdict::Denied, DecisionReason::RecordNotServed, |told| Decision {
                    detail: Some(kind.to_string()),
                    ..about(told)
                });
                let why = (ExtendedError::NotSupported, said(DecisionReason::RecordNotServed));
                answer::without(question, asked, ResponseCode::NoError, Some(why))
            }
        }
    }

    fn no_address(
        &self,
        question: &Message,
        asked: &Name,
        why: &NoAddress,
        about: impl FnOnce(Decision) -> Decision,
    ) -> Message {
        let (code, reason, detail) = match why {
            NoAddress::UsedUp => (ResponseCode::Refused, DecisionReason::PoolExhausted, "names".to_owned()),
            NoAddress::TooFast => {
                (ResponseCode::Refused, DecisionReason::Limit, "new names per minute".to_owned())
            }
            NoAddress::LabelBytes => {
                (ResponseCode::Refused, DecisionReason::UsedUp, "bytes of names below wildcards".to_owned())
            }
            NoAddress::Journal(error) => {
                (ResponseCode::ServFail, DecisionReason::Limit, format!("write the name down: {error}"))
            }
        };
        self.tell(Verdict::Denied, reason, |told| Decision { detail: Some(detail), ..about(told) });
        answer::without(question, asked, code, Some((ExtendedError::Other, said(reason))))
    }

    fn tell(&self, verdict: Verdict, reason: DecisionReason, about: impl FnOnce(Decision) -> Decision) {
        self.state.recorder.tell(about(decision(DecisionKind::Dns, verdict, reason)));
    }
}

fn filtered(reason: DecisionReason) -> (ExtendedError, String) {
    (ExtendedError::Filtered, said(reason))
}

fn said(reason: DecisionReason) -> String {
    let why = match reason {
        DecisionReason::NotAllowed => "denied by the sandbox's egress policy",
        reason => reason.sentence(),
    };
    let retry = if reason.may_retry() { "" } else { "; a retry will not help" };
    format!("{why}{retry}")
}

/// The name, if each label is one of a host name before they are put together: a dot within a label must not become one between labels.
fn hostname(name: &Name) -> Option<Hostname> {
    let mut text = Vec::new();
    for label in name {
        if !label.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-') {
            return None;
        }
        if !text.is_empty() {
            text.push(b'.');
        }
        text.extend_from_slice(label);
    }
    Hostname::from_bytes(&text).ok()
}

fn shown(name: &Name) -> String {
    let labels: Vec<String> = name.iter().map(|label| label.escape_ascii().to_string()).collect();
    labels.join(".").chars().take(SHOWN).collect()
}

/// For a question that can't be read, if its header can.
fn malformed(bytes: &[u8]) -> Option<Message> {
    let header = bytes.get(..HEADER)?;
    let is_answer = header[2] & 0x80 != 0;
    let id = u16::from_be_bytes([header[0], header[1]]);
    (!is_answer).then(|| Message::error_msg(id, OpCode::Query, ResponseCode::FormErr))
}
