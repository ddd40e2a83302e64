use std::collections::HashSet;

use futures::Stream;
use futures::stream::try_unfold;
use sandbar_core::{Error, ErrorKind, Result};
use sandbar_http::Response;
use serde::de::DeserializeOwned;

use crate::config::BACKEND;

/// Most rows of a page: the API's own limit.
pub(super) const PAGE: usize = 100;

/// Most pages of one listing, so that a server that never ends it is found out: ten times more than any account may have.
const MAX_PAGES: usize = 10_000;

/// The header that names the page after this one.
const NEXT: &str = "x-next-token";

/// One page of a listing.
#[derive(Debug)]
pub(crate) struct Page<T> {
    pub(crate) rows: Vec<T>,
    next: Option<String>,
}

impl<T: DeserializeOwned> Page<T> {
    /// Reads an answer. Anything else than a list is an error: an empty list would say that there is nothing.
    pub(super) fn of(response: &Response) -> Result<Self> {
        let next = response.header(NEXT).filter(|token| !token.is_empty()).map(str::to_owned);
        Ok(Self { rows: response.json()?, next })
    }
}

/// All pages, one after another; `ask` gets the token of the page. A page that was there already is an error: the listing would never end.
pub(super) fn pages<T, F>(
    operation: &'static str,
    ask: impl Fn(Option<String>) -> F + Send + 'static,
) -> impl Stream<Item = Result<Page<T>>> + Send
where
    T: Send + 'static,
    F: Future<Output = Result<Page<T>>> + Send + 'static,
{
    let state = (Some(None), HashSet::new(), ask);
    try_unfold(state, move |(token, mut seen, ask)| async move {
        let Some(token) = token else { return Ok(None) };
        let page = ask(token).await?;
        let next = page.next.clone();
        if let Some(next) = &next
            && (seen.len() >= MAX_PAGES || !seen.insert(next.clone()))
        {
            let message = "the listing does not end: a page comes again, so what there is can't be told";
            return Err(Error::new(ErrorKind::Protocol, operation, message).with_backend(BACKEND));
        }
        Ok(Some((page, (next.map(Some), seen, ask))))
    })
}
