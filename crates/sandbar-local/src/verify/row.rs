use sandbar_core::LegClass;

use super::form;
use super::hello::Hello;
use super::surroundings::Surroundings;
use crate::probe::Attempt;

/// A way out that the probe tries.
#[derive(Debug)]
pub(crate) struct Row {
    /// Its name in a verdict and on the scorecard.
    pub(crate) id: &'static str,
    /// Which kind of way it is.
    pub(crate) group: Group,
    /// What is tried, for a person.
    pub(crate) title: &'static str,
    /// What it means for the verdict.
    pub(crate) weight: Weight,
    /// Whether it is tried in a quick look too.
    pub(crate) extent: Tried,
    /// The attempts.
    pub(crate) tries: Tries,
}

/// How the attempts of a row are made. `None` means that the policy has nothing that the row could be tried at, so that it is no leg.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tries {
    /// From all that is known.
    Of(fn(&Surroundings) -> Option<Vec<Try>>),
    /// Hellos to an allowed name on 443, from it and a denied one.
    Hellos(fn(&str, &str) -> Vec<Hello>),
    /// What is said to an allowed name on 80, from it and a denied one.
    Requests(fn(&str, &str) -> Vec<Spoken>),
}

/// Something said over HTTP.
#[derive(Clone, Debug)]
pub(crate) struct Spoken {
    /// What it is, for a person.
    pub(crate) label: &'static str,
    /// The bytes.
    pub(crate) bytes: Vec<u8>,
    /// How many answers of the far side are as they should be.
    pub(crate) allowed: usize,
}

/// One attempt, and how it is shown that its target is there.
#[derive(Clone, Debug)]
pub(crate) struct Try {
    /// Where it goes, for a person.
    pub(crate) label: String,
    /// The attempt.
    pub(crate) attempt: Attempt,
    /// How it is shown that a refusal is one.
    pub(crate) proof: Proof,
}

/// How it is shown that a refusal is one, and the target not merely absent.
#[derive(Clone, Debug)]
pub(crate) enum Proof {
    /// The host tries the same.
    Same,
    /// The host reaches the same target in a way that can succeed from there.
    Host(Box<Attempt>),
    /// Nothing far away is needed: the sandbox's own kernel or gateway is there, and is what refuses.
    Own,
}

/// What a row means for the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// It has to be reached, or nothing was observed.
    Control,
    /// It has to be refused, and its target has to be there.
    Needed,
    /// It has to be refused; its target may not be there on an honest host.
    Optional,
}

/// In which looks a row is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    /// In every one.
    Always,
    /// In a full one.
    InFull,
}

/// Which kind of way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    /// What has to be reached.
    Control,
    /// Addresses.
    Direct,
    /// The resolver.
    Dns,
    /// Names in the resolver and in TLS.
    Names,
    /// HTTP.
    Http,
    /// Other than TCP, and the kernel.
    Transport,
    /// What changes while it runs.
    State,
    /// The gateway itself.
    Gateway,
}

impl Row {
    /// The class of the row: what is tried is to be closed, but for what has to be reached.
    pub(crate) fn class(&self) -> LegClass {
        if self.weight == Weight::Control { LegClass::Control } else { LegClass::Blocked }
    }
}

impl Tries {
    /// The attempts in these surroundings.
    pub(crate) fn made(&self, at: &Surroundings) -> Option<Vec<Try>> {
        match self {
            Self::Of(make) => make(at),
            Self::Hellos(make) => {
                let (allowed, denied) = (at.tls_name.as_deref()?, at.denied_name.as_deref()?);
                let shown = form::tls(allowed, 443, &Hello::of(allowed));
                let one = |(index, hello): (usize, &Hello)| {
                    let label = format!("hello {}", index + 1);
                    Try::shown_by(label, form::tls(allowed, 443, hello), shown.clone())
                };
                Some(make(allowed, denied).iter().enumerate().map(one).collect())
            }
            Self::Requests(make) => {
                let (allowed, denied) = (at.http_name.as_deref()?, at.denied_name.as_deref()?);
                let shown = form::get(allowed, allowed, 80);
                let one = |spoken: Spoken| {
                    let attempt = form::say(allowed, spoken.bytes, spoken.allowed);
                    Try::shown_by(spoken.label, attempt, shown.clone())
                };
                Some(make(allowed, denied).into_iter().map(one).collect())
            }
        }
    }
}

impl Try {
    /// The host tries the same.
    pub(crate) fn same(label: impl Into<String>, attempt: Attempt) -> Self {
        Self { label: label.into(), attempt, proof: Proof::Same }
    }

    /// The host reaches the target by another attempt.
    pub(crate) fn shown_by(label: impl Into<String>, attempt: Attempt, host: Attempt) -> Self {
        Self { label: label.into(), attempt, proof: Proof::Host(Box::new(host)) }
    }

    /// The target is the sandbox's own.
    pub(crate) fn own(label: impl Into<String>, attempt: Attempt) -> Self {
        Self { label: label.into(), attempt, proof: Proof::Own }
    }
}

impl Group {
    /// The heading of its part of the scorecard.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::Control => "Has to be reached",
            Self::Direct => "Direct",
            Self::Dns => "DNS",
            Self::Names => "Names",
            Self::Http => "HTTP",
            Self::Transport => "Other transport, and the kernel",
            Self::State => "While it runs",
            Self::Gateway => "The gateway itself",
        }
    }
}
