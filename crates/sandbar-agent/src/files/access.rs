use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use http::header::HeaderMap;
use sandbar_wire::envd::{HttpError, Operation, sign, signature_matches};

use crate::filesystem::Context;
use crate::http::{basic_user, from_rpc, token_allows};
use crate::paths;
use crate::state::State;
use crate::users::User;

/// Parameters of a request's query, decoded.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Result<Self, HttpError> {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let decoded = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?.into_owned(), decode(value)?.into_owned()))
        });
        decoded
            .collect::<Option<Vec<_>>>()
            .map(Self)
            .ok_or_else(|| HttpError::new(400, "the query is not percent-encoded UTF-8"))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Decodes `%XX` and `+`.
fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        bytes.push(match first {
            b'+' => b' ',
            b'%' => {
                let (digits, tail) = tail.split_at_checked(2)?;
                rest = tail;
                let digits =
                    std::str::from_utf8(digits).ok().filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
                u8::from_str_radix(digits, 16).ok()?
            }
            other => *other,
        });
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// Who asks for which file, once that is allowed.
pub(crate) struct Access {
    pub(crate) user: User,
    pub(super) path: Option<String>,
    pub(super) context: Context,
    workdir: Option<String>,
}

impl Access {
    /// Checks the token, else the signature, and looks up the user.
    pub(super) fn check(
        state: &State,
        headers: &HeaderMap,
        query: &Query,
        operation: Operation,
    ) -> Result<Self, HttpError> {
        let path = query.get("path").map(str::to_owned);
        let username = query.get("username").filter(|name| !name.is_empty());
        let token = state.defaults.borrow().token.clone();
        if let Some(token) = token {
            match token_allows(headers, &token) {
                Some(allowed) => allowed?,
                None => check_signature(query, path.as_deref().unwrap_or_default(), operation, &token)?,
            }
        }
        let named = match username {
            Some(name) => Some(name.to_owned()),
            None => basic_user(headers).map_err(from_rpc)?,
        };
        Self::of(state, named.as_deref(), path)
    }

    /// Access of a user whose right to it was checked.
    pub(crate) fn of(state: &State, user: Option<&str>, path: Option<String>) -> Result<Self, HttpError> {
        let user = state.user(user).map_err(from_rpc)?;
        let context = Context { etc: state.config.etc.clone(), owner: state.owner(&user) };
        let workdir = state.defaults.borrow().workdir.clone();
        Ok(Self { user, path, context, workdir })
    }

    pub(crate) fn resolve(&self, path: &str) -> PathBuf {
        paths::resolve(Path::new(path), &self.user, self.workdir.as_deref())
    }
}

/// Signature first, expiry second: the order is observable.
fn check_signature(query: &Query, path: &str, operation: Operation, token: &str) -> Result<(), HttpError> {
    let Some(given) = query.get("signature") else {
        return Err(HttpError::new(401, "missing signature query parameter"));
    };
    let expiration = match query.get("signature_expiration") {
        None => None,
        Some(text) => Some(text.parse::<i64>().map_err(|_| HttpError::new(401, "invalid signature"))?),
    };
    let user = query.get("username").unwrap_or_default();
    if !signature_matches(&sign(path, operation, user, token, expiration), given) {
        return Err(HttpError::new(401, "invalid signature"));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if expiration.is_some_and(|expiration| u64::try_from(expiration).unwrap_or(0) < now) {
        return Err(HttpError::new(401, "signature is already expired"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse(Some("path=a%2Fb+c%C3%A9&x&y=")).unwrap();
        assert_eq!((query.get("path"), query.get("x"), query.get("z")), (Some("a/b cé"), Some(""), None));
        assert!(Query::parse(Some("path=%ff")).is_err() && Query::parse(Some("path=%+1")).is_err());
    }

    proptest! {
        #[test]
        fn any_query_is_safe(text in ".{0,40}") {
            let _ = Query::parse(Some(&text));
        }
    }
}
