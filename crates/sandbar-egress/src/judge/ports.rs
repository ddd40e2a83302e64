use std::collections::BTreeSet;

use sandbar_core::PortSet;

/// Which rule speaks of a port: ranges without overlap, rising, so that it is one search however many rules there are.
#[derive(Debug, Default)]
pub(super) struct PortTable {
    ranges: Vec<(u16, u16, usize)>,
    /// The first of the rules, as they are written.
    first: Option<usize>,
}

impl PortTable {
    /// Of rules that are about the same hosts: the number of each, and its ports. Where several speak of a port, the first in this order does.
    pub(super) fn new<'a>(rules: impl IntoIterator<Item = (usize, &'a PortSet)>) -> Self {
        let mut edges = Vec::new();
        let mut numbers = Vec::new();
        for (rank, (number, ports)) in rules.into_iter().enumerate() {
            numbers.push(number);
            for range in ports.ranges() {
                edges.push((u32::from(*range.start()), true, rank));
                edges.push((u32::from(*range.end()) + 1, false, rank));
            }
        }
        edges.sort_unstable();
        let mut table: Vec<(u16, u16, usize)> = Vec::new();
        let mut open = BTreeSet::new();
        let mut start = 0;
        for (at, opens, rank) in edges {
            if let Some(first) = open.first()
                && at > start
            {
                let number = numbers[*first];
                let (from, to) = (narrow(start), narrow(at - 1));
                match table.last_mut() {
                    Some((_, end, same)) if *same == number && end.checked_add(1) == Some(from) => *end = to,
                    _ => table.push((from, to, number)),
                }
            }
            start = at;
            if opens {
                open.insert(rank);
            } else {
                open.remove(&rank);
            }
        }
        Self { ranges: table, first: numbers.into_iter().min() }
    }

    /// The rule that speaks of `port`.
    pub(super) fn get(&self, port: u16) -> Option<usize> {
        let after = self.ranges.partition_point(|(first, _, _)| *first <= port);
        let (_, last, number) = self.ranges.get(after.checked_sub(1)?)?;
        (port <= *last).then_some(*number)
    }

    /// The first of the rules, as they are written.
    pub(super) fn first(&self) -> Option<usize> {
        self.first
    }

    /// Any rule at all.
    pub(super) fn any(&self) -> Option<usize> {
        self.ranges.first().map(|(_, _, number)| *number)
    }

    /// The rule that speaks of every port, or the first of those that do together.
    pub(super) fn every(&self) -> Option<usize> {
        let mut next = 1;
        for (first, last, _) in &self.ranges {
            if *first != next {
                return None;
            }
            let Some(after) = last.checked_add(1) else { return self.any() };
            next = after;
        }
        None
    }

    /// Each port that a rule speaks of.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        self.ranges.iter().flat_map(|(first, last, _)| *first..=*last)
    }
}

/// Edges are ports, or one more than the highest.
fn narrow(edge: u32) -> u16 {
    u16::try_from(edge).unwrap_or(u16::MAX)
}
