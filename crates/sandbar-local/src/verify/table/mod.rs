//! The ways out that are tried: data, and nothing else.

mod direct;
mod dns;
mod gateway;
mod http;
mod names;
mod quick;
mod transport;

use super::row::{Row, Tried};
use sandbar_core::Extent;

/// Every row, in the order of a verdict.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    [quick::ROWS, direct::ROWS, dns::ROWS, names::ROWS, http::ROWS, transport::ROWS, gateway::ROWS]
        .into_iter()
        .flatten()
}

/// Those of a look of this extent.
pub(crate) fn rows_of(extent: Extent) -> impl Iterator<Item = &'static Row> {
    rows().filter(move |row| extent == Extent::Full || row.extent == Tried::Always)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::verify::row::Weight;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let ids: BTreeSet<_> = rows().map(|row| row.id).collect();
        assert_eq!(ids.len(), rows().count());
        let is_plain =
            |id: &str| id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        assert!(ids.iter().all(|id| is_plain(id)), "{ids:?}");
    }

    #[test]
    fn what_is_needed_is_tried_in_every_look() {
        for row in rows().filter(|row| row.weight != Weight::Optional) {
            assert_eq!(row.extent, Tried::Always, "{}", row.id);
        }
    }
}
