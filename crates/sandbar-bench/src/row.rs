use serde::Serialize;

use crate::sample::{Samples, Summary};

/// One line of the report.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// What to give `cargo xtask bench` to repeat it.
    pub(crate) name: &'static str,
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) ours: Summary,
    pub(crate) peer: Peer,
    /// What is aimed at.
    pub(crate) bar: Bar,
}

/// What it is compared with.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Peer {
    /// Measured in the same run, in turns.
    Measured { what: &'static str, summary: Summary },
    /// Not measured, and why.
    Absent(String),
}

/// A bar of the issue.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bar {
    /// The median is at most this many times the peer's.
    AtMostTimes(f64),
    /// The median is at least this many times the peer's.
    AtLeastTimes(f64),
    /// The median is at most so much more than the peer's, in the row's unit.
    AtMostMore(f64),
    /// The median is at most this, in the row's unit.
    AtMost(f64),
    /// The median is at least this, in the row's unit.
    AtLeast(f64),
    /// There is none: the row explains another.
    None,
}

impl Row {
    pub(crate) fn new(
        name: &'static str,
        what: impl Into<String>,
        unit: &'static str,
        ours: Samples,
        peer: Peer,
        bar: Bar,
    ) -> Self {
        Self { name, what: what.into(), unit, ours: ours.summary(), peer, bar }
    }
}

impl Peer {
    pub(crate) fn measured(what: &'static str, samples: Samples) -> Self {
        Self::Measured { what, summary: samples.summary() }
    }

    pub(crate) fn none() -> Self {
        Self::Absent("nothing to compare with".into())
    }
}
