use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use sandbar_core::Cidr;

use super::ports::PortTable;

/// Which rules speak of an address: a look for each length of prefix that there is, however many prefixes there are.
#[derive(Debug, Default)]
pub(super) struct RangeTable {
    ranges: HashMap<Cidr, PortTable>,
    lengths_v4: Vec<u8>,
    lengths_v6: Vec<u8>,
}

impl RangeTable {
    pub(super) fn new(ranges: HashMap<Cidr, PortTable>) -> Self {
        let lengths = |v6: bool| {
            let of_family = ranges.keys().filter(|range| range.network().is_ipv6() == v6);
            let lengths: BTreeSet<u8> = of_family.map(Cidr::prefix_len).collect();
            lengths.into_iter().rev().collect()
        };
        let (lengths_v4, lengths_v6) = (lengths(false), lengths(true));
        Self { ranges, lengths_v4, lengths_v6 }
    }

    /// Everything that is about `address`, the longest prefix first.
    pub(super) fn about(&self, address: IpAddr) -> impl Iterator<Item = (Cidr, &PortTable)> {
        let lengths = if address.is_ipv4() { &self.lengths_v4 } else { &self.lengths_v6 };
        lengths.iter().filter_map(move |bits| {
            let range = Cidr::around(address, *bits)?;
            self.ranges.get(&range).map(|table| (range, table))
        })
    }

    pub(super) fn tables(&self) -> impl Iterator<Item = &PortTable> {
        self.ranges.values()
    }
}
