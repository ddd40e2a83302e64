use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{self, HeaderMap};
use sandbar_wire::envd::{ACCESS_TOKEN_HEADER, Code, HttpError, RpcError, tokens_equal};

/// The user named in an `Authorization: Basic` header, whose password is empty; `None` where there is no header.
pub(crate) fn basic_user(headers: &HeaderMap) -> Result<Option<String>, RpcError> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let malformed = || RpcError::new(Code::Unauthenticated, "authorization header is not `Basic`");
    let text = value.to_str().map_err(|_| malformed())?;
    let (scheme, credentials) = text.split_once(' ').ok_or_else(malformed)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(malformed());
    }
    let decoded = STANDARD.decode(credentials.trim()).map_err(|_| malformed())?;
    let decoded = String::from_utf8(decoded).map_err(|_| malformed())?;
    let user = decoded.split(':').next().unwrap_or_default();
    Ok((!user.is_empty()).then(|| user.to_owned()))
}

/// Checks the token of a request; `None` where it carries none.
pub(crate) fn token_allows(headers: &HeaderMap, expected: &str) -> Option<Result<(), HttpError>> {
    let given = headers.get(ACCESS_TOKEN_HEADER)?;
    let matches = given.to_str().is_ok_and(|given| tokens_equal(expected, given));
    Some(if matches {
        Ok(())
    } else {
        Err(HttpError::new(401, "unauthorized access, the access token is not the sandbox's"))
    })
}
