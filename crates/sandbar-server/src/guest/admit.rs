//! Who may: tokens of the sandbox, and signatures made with them.

use std::time::{SystemTime, UNIX_EPOCH};

use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Uri, header};
use sandbar_wire::envd::{ACCESS_TOKEN_HEADER, ENVD_PORT, Operation, sign, signature_matches, tokens_equal};

use super::problem::Problem;
use super::resident::Resident;

/// Opens ports of a sandbox that has no public ones.
pub(super) const TRAFFIC_HEADER: HeaderName = HeaderName::from_static("e2b-traffic-access-token");

/// Port of the code interpreter, which runs whatever it is told: the token of a secure sandbox opens it, as it does the guest's API.
pub(crate) const INTERPRETER_PORT: u16 = 49999;

/// What E2B keeps for itself, and what this server keeps.
const RESERVED: &[&str] = &["/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"];

/// Whether a request that is let in wakes a sandbox that sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waking {
    /// It has shown what it takes.
    Allowed,
    /// Anybody could have sent it.
    Refused,
}

/// Lets a request in, or says why not. What nobody has vouched for is taken off it.
pub(super) fn admit(resident: &Resident, port: u16, parts: &mut Parts) -> Result<Waking, Problem> {
    if port == ENVD_PORT {
        return guest(resident, parts);
    }
    if resident.marks.is_private {
        match parts.headers.get(TRAFFIC_HEADER) {
            Some(given) if is_equal(&resident.traffic_token, given.as_bytes()) => {}
            given => return Err(Problem::no_traffic(resident.id.as_str(), given.is_some())),
        }
    }
    if port == INTERPRETER_PORT && resident.marks.is_secure {
        return interpreter(resident, parts);
    }
    Ok(Waking::Allowed)
}

/// The guest's API. Some of it says nothing worth a token, and files may come with a signature instead.
fn guest(resident: &Resident, parts: &mut Parts) -> Result<Waking, Problem> {
    let path = parts.uri.path().to_owned();
    let path = path.as_str();
    if RESERVED.contains(&path) || path.starts_with("/sandbar/") {
        return Err(Problem::reserved(path));
    }
    if !resident.marks.is_secure {
        return Ok(Waking::Allowed);
    }
    let is_harmless = parts.method == Method::OPTIONS
        || (path == "/health" && matches!(parts.method, Method::GET | Method::HEAD));
    match (token(resident, &parts.headers), path) {
        (Some(true), _) => Ok(Waking::Allowed),
        _ if is_harmless => Ok(Waking::Refused),
        (Some(false), _) => Err(Problem::unauthorized(NOT_ITS_TOKEN)),
        (None, "/files") => {
            let signed = Signed::of(&parts.method, &parts.uri)?;
            signed.check(&resident.guest_token)?;
            as_signed(&mut parts.headers);
            Ok(Waking::Allowed)
        }
        (None, _) => Err(Problem::unauthorized("unauthorized access, the request carries no access token")),
    }
}

/// The code interpreter. Official SDKs send the access token where code is run, and the traffic token everywhere.
fn interpreter(resident: &Resident, parts: &Parts) -> Result<Waking, Problem> {
    let traffic = parts.headers.get(TRAFFIC_HEADER);
    if traffic.is_some_and(|given| is_equal(&resident.traffic_token, given.as_bytes())) {
        return Ok(Waking::Allowed);
    }
    match token(resident, &parts.headers) {
        Some(true) => Ok(Waking::Allowed),
        Some(false) => Err(Problem::unauthorized(NOT_ITS_TOKEN)),
        None => Err(Problem::unauthorized(
            "unauthorized access, the code interpreter of a secure sandbox asks for its access token",
        )),
    }
}

/// What a token answers that is another's, or nobody's.
const NOT_ITS_TOKEN: &str = "unauthorized access, the access token is not the sandbox' own";

/// Whether the token in the headers is the sandbox' own; `None` if there is none.
fn token(resident: &Resident, headers: &HeaderMap) -> Option<bool> {
    let given = headers.get(ACCESS_TOKEN_HEADER)?;
    Some(is_equal(&resident.guest_token, given.as_bytes()))
}

/// Compares in constant time.
fn is_equal(expected: &str, given: &[u8]) -> bool {
    std::str::from_utf8(given).is_ok_and(|given| tokens_equal(expected, given))
}

/// The signed parameters of a URL.
#[derive(Debug)]
pub(super) struct Signed {
    path: String,
    user: String,
    operation: Operation,
    signature: String,
    expiration: Option<i64>,
}

impl Signed {
    pub(super) fn of(method: &Method, uri: &Uri) -> Result<Self, Problem> {
        let query = uri.query().unwrap_or_default();
        let (mut path, mut user, mut signature, mut expiration) = (None, None, None, None);
        // The first of each counts, as it does for the guest.
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let place = match &*key {
                "path" => &mut path,
                "username" => &mut user,
                "signature" => &mut signature,
                "signature_expiration" => &mut expiration,
                _ => continue,
            };
            place.get_or_insert_with(|| value.into_owned());
        }
        let signature =
            signature.ok_or_else(|| Problem::unauthorized("missing signature query parameter"))?;
        let expiration = match expiration {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| Problem::unauthorized(INVALID))?),
        };
        let operation = if *method == Method::POST { Operation::Write } else { Operation::Read };
        Ok(Self {
            path: path.unwrap_or_default(),
            user: user.unwrap_or_default(),
            operation,
            signature,
            expiration,
        })
    }

    /// Whether this token made the signature.
    pub(super) fn is_by(&self, token: &str) -> bool {
        let expected = sign(&self.path, self.operation, &self.user, token, self.expiration);
        signature_matches(&expected, &self.signature)
    }

    /// Signature first, expiry second: the order can be seen.
    pub(super) fn check(&self, token: &str) -> Result<(), Problem> {
        if !self.is_by(token) {
            return Err(Problem::unauthorized(INVALID));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if self.expiration.is_some_and(|expiration| u64::try_from(expiration).unwrap_or(0) < now) {
            return Err(Problem::unauthorized("signature is already expired"));
        }
        Ok(())
    }
}

/// A signature is for the user that it names, or for the sandbox' own: whoever has the URL can't choose another.
pub(super) fn as_signed(headers: &mut HeaderMap) {
    headers.remove(header::AUTHORIZATION);
}

/// What every signature answers that no sandbox made.
pub(super) const INVALID: &str = "invalid signature";

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(target: &str) -> Result<Signed, Problem> {
        Signed::of(&Method::GET, &target.parse().unwrap())
    }

    #[test]
    fn signatures_are_those_of_the_protocol() {
        let token = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0";
        let url =
            "/files?path=hello.txt&username=user&signature=v1_gUtH%2Fs9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E";
        assert!(signed(url).unwrap().is_by(token) && !signed(url).unwrap().is_by("other"));
        let post = Signed::of(&Method::POST, &url.parse().unwrap()).unwrap();
        assert!(!post.is_by(token), "a signature for reading does not write");
        assert!(signed("/files?path=x").is_err());
        assert!(signed("/files?path=x&signature=v1_x&signature_expiration=soon").is_err());
    }

    #[test]
    fn an_expired_signature_is_one_of_the_right_token() {
        let signature = sign("a", Operation::Read, "", "t", Some(1));
        let query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs([("path", "a"), ("signature", &signature), ("signature_expiration", "1")])
            .finish();
        let signed = signed(&format!("/files?{query}")).unwrap();
        let text = |problem: Problem| format!("{problem:?}");
        assert!(text(signed.check("t").unwrap_err()).contains("already expired"));
        assert!(text(signed.check("u").unwrap_err()).contains(INVALID));
    }
}
