use http::StatusCode;
use sandbar_core::Error;
use sandbar_http::Response;
use sandbar_wire::e2b::ErrorBody;

/// What E2B says in an answer that is no success.
fn words(response: &Response) -> Option<ErrorBody> {
    let body: ErrorBody = serde_json::from_slice(response.body()).ok()?;
    (body.code == i32::from(response.status().as_u16())).then_some(body)
}

/// Whether it is the API's own, in its own form.
pub(crate) fn is_own(response: &Response) -> bool {
    words(response).is_some()
}

/// Whether the API itself says that what was asked for does not exist. A proxy on the way says 404 in other words, and that is no absence.
pub(crate) fn is_absent(response: &Response) -> bool {
    response.status() == StatusCode::NOT_FOUND && words(response).is_some()
}

/// The error of an answer that is no success.
pub(crate) fn refusal(response: &Response) -> Error {
    let Some(body) = words(response) else { return response.unexpected() };
    let error = response.refused(&body.message);
    match response.status() {
        StatusCode::UNAUTHORIZED => {
            error.with_hint("look whether the key in `E2B_API_KEY` is whole and still valid")
        }
        StatusCode::TOO_MANY_REQUESTS => {
            error.with_hint("the account's limit of requests or of sandboxes at once is reached")
        }
        _ => error,
    }
}
