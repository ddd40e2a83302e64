use std::collections::HashMap;

use sandbar_core::{Hostname, NamePattern};

use super::ports::PortTable;

/// Which rules speak of a name.
#[derive(Debug, Default)]
pub(super) struct NameTable {
    exact: HashMap<Hostname, PortTable>,
    below: HashMap<Hostname, PortTable>,
}

impl NameTable {
    pub(super) fn new(exact: HashMap<Hostname, PortTable>, below: HashMap<Hostname, PortTable>) -> Self {
        Self { exact, below }
    }

    /// Everything that is about `name`, the most specific first, each with the pattern that it stands under.
    pub(super) fn about<'a>(
        &'a self,
        name: &'a Hostname,
    ) -> impl Iterator<Item = (NamePattern, &'a PortTable)> {
        let exact = self.exact.get(name).map(|table| (NamePattern::Exact(name.clone()), table));
        exact.into_iter().chain(self.above(name))
    }

    fn above<'a>(&'a self, name: &'a Hostname) -> impl Iterator<Item = (NamePattern, &'a PortTable)> {
        let dots = if self.below.is_empty() { "" } else { name.as_str() };
        dots.match_indices('.').filter_map(|(dot, _)| {
            let suffix = Hostname::parse(&name.as_str()[dot + 1..]).ok()?;
            let table = self.below.get(&suffix)?;
            Some((NamePattern::Below(suffix), table))
        })
    }

    pub(super) fn tables(&self) -> impl Iterator<Item = &PortTable> {
        self.exact.values().chain(self.below.values())
    }
}
