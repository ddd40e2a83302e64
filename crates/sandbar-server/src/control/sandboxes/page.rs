use std::cmp::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use jiff::Timestamp;

use crate::error::{ApiError, ApiResult};

/// Most entries of a page, and how many there are where nothing is said.
pub(super) const MAX_PAGE: usize = 100;

/// Longest token, in bytes: a time and an id take far less.
const MAX_TOKEN: usize = 512;

/// Header with the token of the next page.
pub(super) const NEXT_TOKEN: &str = "x-next-token";

/// By the time of the start: the newest first, or the other way round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Descending,
    Ascending,
}

/// A place in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) at: Timestamp,
    pub(super) id: String,
}

impl Order {
    pub(super) fn parse(text: Option<&str>) -> ApiResult<Self> {
        match text {
            None | Some("" | "desc") => Ok(Self::Descending),
            Some("asc") => Ok(Self::Ascending),
            Some(other) => {
                let message = format!("order \"{other}\" is not valid: expected \"asc\" or \"desc\"");
                Err(ApiError::bad_request(message))
            }
        }
    }

    /// Newest first, then by id; the other order is exactly the reverse.
    pub(super) fn compare(self, a: &Place, b: &Place) -> Ordering {
        let descending = b.at.cmp(&a.at).then_with(|| a.id.cmp(&b.id));
        match self {
            Self::Descending => descending,
            Self::Ascending => descending.reverse(),
        }
    }
}

/// How many entries a page has.
pub(super) fn limit(asked: Option<i64>) -> ApiResult<usize> {
    let Some(asked) = asked else { return Ok(MAX_PAGE) };
    usize::try_from(asked).ok().filter(|limit| (1..=MAX_PAGE).contains(limit)).ok_or_else(|| {
        ApiError::bad_request(format!("limit {asked} is not valid: expected a number from 1 to {MAX_PAGE}"))
    })
}

/// The token for what comes after `place`.
pub(super) fn token(place: &Place, order: Order) -> String {
    let suffix = if order == Order::Ascending { "__asc" } else { "" };
    URL_SAFE.encode(format!("{}__{}{suffix}", place.at, place.id))
}

/// The place that a token was made of. One of another order is refused, since it would skip or repeat.
pub(super) fn place(token: Option<&str>, order: Order) -> ApiResult<Option<Place>> {
    let Some(token) = token.filter(|token| !token.is_empty()) else { return Ok(None) };
    let invalid = || ApiError::bad_request("Invalid next token");
    if token.len() > MAX_TOKEN {
        return Err(invalid());
    }
    let bytes = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).map_err(|_| invalid())?;
    let text = String::from_utf8(bytes).map_err(|_| invalid())?;
    let (at, rest) = text.split_once("__").ok_or_else(invalid)?;
    let (id, of) = match rest.split_once("__") {
        None => (rest, Order::Descending),
        Some((id, "asc")) => (id, Order::Ascending),
        Some(_) => return Err(invalid()),
    };
    if of != order || id.is_empty() {
        return Err(invalid());
    }
    let at = at.parse().map_err(|_| invalid())?;
    Ok(Some(Place { at, id: id.to_owned() }))
}

/// The entries of a page, in order, and the token of the next one if there is more.
pub(super) fn cut<T>(
    mut entries: Vec<(Place, T)>,
    order: Order,
    after: Option<&Place>,
    limit: usize,
) -> (Vec<T>, Option<String>) {
    if let Some(after) = after {
        entries.retain(|(place, _)| order.compare(place, after) == Ordering::Greater);
    }
    entries.sort_by(|(a, _), (b, _)| order.compare(a, b));
    let next = (entries.len() > limit).then(|| token(&entries[limit - 1].0, order));
    entries.truncate(limit);
    (entries.into_iter().map(|(_, entry)| entry).collect(), next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<(Place, u8)> {
        // Two were started at the same moment.
        [(3, "a", 0), (1, "c", 3), (2, "b", 1), (2, "c", 2)]
            .map(|(second, id, number)| {
                (Place { at: Timestamp::from_second(second).unwrap(), id: id.into() }, number)
            })
            .into()
    }

    fn walk(order: Order, limit: usize) -> Vec<u8> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let (page, next) = cut(entries(), order, after.as_ref(), limit);
            assert!(page.len() <= limit);
            all.extend(page);
            let Some(next) = next else { return all };
            after = place(Some(&next), order).unwrap();
        }
    }

    /// Bug 24 of those that others had (a token that was ignored): pages end, and have each entry once.
    #[test]
    fn pages_have_each_entry_once_in_order() {
        for limit in 1..6 {
            assert_eq!(walk(Order::Descending, limit), [0, 1, 2, 3], "{limit}");
            assert_eq!(walk(Order::Ascending, limit), [3, 2, 1, 0], "{limit}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_token_is_read_or_refused(text in ".*", bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..60)) {
            for token in [text, URL_SAFE.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)] {
                let _ = place(Some(&token), Order::Descending);
            }
        }
    }

    #[test]
    fn a_token_is_of_its_order() {
        let place_ = Place { at: "2026-01-01T00:00:00.123456789Z".parse().unwrap(), id: "s1".into() };
        for order in [Order::Descending, Order::Ascending] {
            assert_eq!(place(Some(&token(&place_, order)), order).unwrap(), Some(place_.clone()));
        }
        let error = place(Some(&token(&place_, Order::Descending)), Order::Ascending).unwrap_err();
        assert_eq!(error.message, "Invalid next token");
        for bad in ["%", "AAAA", &URL_SAFE.encode("x__y"), &"A".repeat(4096)] {
            assert!(place(Some(bad), Order::Descending).is_err(), "{bad}");
        }
        assert_eq!(place(None, Order::Descending).unwrap(), None);
        assert!(limit(Some(0)).is_err() && limit(Some(101)).is_err());
    }
}
