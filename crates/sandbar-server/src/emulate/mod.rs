//! The guest's protocol, spoken by the server itself where a backend has no guest that does: commands, files and watches of the contract, in
//! the words that SDKs know. What the contract does not have answers `unimplemented`, and says so.

mod call;
mod files;
mod filesystem;
mod process;

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::{Method, Request, StatusCode};
use sandbar_core::Sandbox;
use sandbar_wire::envd::{Code, HttpError, Metrics, RpcError};

use self::call::{Call, failed, http_error, json};

/// Largest document of a call, in bytes. Files come another way.
const MAX_CALL: usize = 4 << 20;

/// Answers a request for the guest's API of a sandbox that runs. Who may was found out before.
pub(crate) async fn serve(sandbox: Arc<dyn Sandbox>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    match (parts.method.clone(), path.as_str()) {
        (Method::GET | Method::HEAD, "/health") | (Method::OPTIONS, _) => empty(StatusCode::NO_CONTENT),
        (Method::GET, "/metrics") => metrics(&*sandbox).await,
        (Method::GET | Method::HEAD, "/files") => files::download(&*sandbox, &parts).await,
        (Method::POST, "/files") => files::upload(&*sandbox, &parts, body).await,
        (Method::POST, _) => {
            let Some((service, method)) = path.strip_prefix('/').and_then(|rest| rest.split_once('/')) else {
                return missing(&path);
            };
            let call = match Call::read(&parts, body).await {
                Ok(call) => call,
                Err(response) => return response,
            };
            match service {
                "process.Process" => process::serve(sandbox, method, call).await,
                "filesystem.Filesystem" => filesystem::serve(sandbox, method, call).await,
                _ => missing(&path),
            }
        }
        _ => missing(&path),
    }
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn missing(path: &str) -> Response {
    let text = format!("no such endpoint here: `{path}`; this backend has no guest that serves more");
    http_error(&HttpError::new(404, text))
}

fn unimplemented(what: &str) -> RpcError {
    RpcError::new(Code::Unimplemented, format!("{what} is not there: this backend has no such part"))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of processors are small"
)]
async fn metrics(sandbox: &dyn Sandbox) -> Response {
    let Some(part) = sandbox.metrics() else {
        return http_error(&HttpError::new(501, "this backend does not measure"));
    };
    match part.sample().await {
        Ok(sample) => json(&Metrics {
            ts: sample.at.as_second(),
            cpu_count: sample.cpu_count.unwrap_or_default().ceil() as u32,
            mem_total: sample.memory_limit_bytes.unwrap_or_default(),
            mem_used: sample.memory_bytes.unwrap_or_default(),
            disk_used: sample.disk_bytes.unwrap_or_default(),
            ..Metrics::default()
        }),
        Err(error) => http_error(&HttpError::new(failed(&error).code.http_status(), error.message())),
    }
}

#[cfg(test)]
mod tests;
