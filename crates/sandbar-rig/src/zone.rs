use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::Rig;
use crate::wire::{Answer, Ask, Outcome, Record};

/// Seconds that a record may be kept, unless a test says otherwise.
const TTL: u32 = 60;

/// What the resolver is to answer for a name. [`publish`](Zone::publish) makes it so.
#[derive(Debug)]
#[must_use = "nothing is answered before `publish`"]
pub struct Zone<'a> {
    rig: &'a Rig,
    name: String,
    answers: Vec<Answer>,
}

impl<'a> Zone<'a> {
    pub(crate) fn new(rig: &'a Rig, name: &str) -> Self {
        Self { rig, name: name.to_owned(), answers: vec![fresh()] }
    }

    /// Adds an IPv4 address.
    pub fn a(self, address: impl Into<Ipv4Addr>) -> Self {
        let address = address.into();
        self.record(Record::A(address))
    }

    /// Adds an IPv6 address.
    pub fn aaaa(self, address: impl Into<Ipv6Addr>) -> Self {
        let address = address.into();
        self.record(Record::Aaaa(address))
    }

    /// Makes the name an alias. The resolver adds the records of the target, as recursive ones do.
    pub fn cname(self, target: &str) -> Self {
        self.record(Record::Cname(target.to_owned()))
    }

    /// Adds a text.
    pub fn txt(self, text: &str) -> Self {
        self.record(Record::Txt(text.to_owned()))
    }

    /// Adds a service binding with these protocols.
    pub fn https(self, protocols: &[&str]) -> Self {
        self.record(Record::Https(protocols.iter().map(|&p| p.to_owned()).collect()))
    }

    /// Sets for how many seconds the answer may be kept.
    pub fn ttl(mut self, seconds: u32) -> Self {
        self.last().ttl = seconds;
        self
    }

    /// Answers late.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.last().delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Says that the name does not exist.
    pub fn nxdomain(self) -> Self {
        self.outcome(Outcome::NxDomain)
    }

    /// Says that the resolver is broken.
    pub fn servfail(self) -> Self {
        self.outcome(Outcome::ServFail)
    }

    /// Says nothing at all.
    pub fn silent(self) -> Self {
        self.outcome(Outcome::Silence)
    }

    /// What follows is the answer to the next query of a type (and to all later ones, unless there is another `then`).
    pub fn then(mut self) -> Self {
        self.answers.push(fresh());
        self
    }

    /// Makes it so, in place of what was published for the name before.
    pub fn publish(self) {
        self.rig.done(&Ask::Zone { name: self.name, answers: self.answers });
    }

    fn record(mut self, record: Record) -> Self {
        self.last().records.push(record);
        self
    }

    fn outcome(mut self, outcome: Outcome) -> Self {
        self.last().outcome = outcome;
        self
    }

    fn last(&mut self) -> &mut Answer {
        if self.answers.is_empty() {
            self.answers.push(fresh());
        }
        let last = self.answers.len() - 1;
        &mut self.answers[last]
    }
}

fn fresh() -> Answer {
    Answer { ttl: TTL, ..Answer::default() }
}
