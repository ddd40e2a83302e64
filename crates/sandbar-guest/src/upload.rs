//! How a file's bytes go to the agent.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::header::CONTENT_TYPE;
use http::{Method, StatusCode};
use sandbar_core::{ByteStream, GuestPath, Result, UserName};

use crate::body::{BodyError, Progress, RequestBody, streamed, whole};
use crate::client::GuestClient;
use crate::files::{FILES, place};
use crate::operation::Operation;
use crate::patience;
use crate::random::word;
use crate::rpc::request;

/// How long an upload may take as a whole: 1 TiB at 100 MB/s is three hours.
pub(crate) const UPLOAD: Duration = Duration::from_secs(24 * 3600);

/// What a request with a file looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The bytes as they are.
    Raw,
    /// A form with one part (RFC 7578), as agents of old want it.
    Multipart,
}

impl GuestClient {
    /// Writes a file from a stream. Where the stream ends with an error, that is the answer, and what is at `path` is for the agent to tell.
    pub(crate) async fn upload(
        &self,
        path: &GuestPath,
        body: ByteStream,
        user: Option<&UserName>,
        form: Form,
        operation: Operation,
    ) -> Result<()> {
        let (content_type, body) = match form {
            Form::Raw => ("application/octet-stream".to_owned(), body),
            Form::Multipart => {
                let (content_type, before, after) = part();
                let (before, after) = (stream::iter([Ok(before)]), stream::iter([Ok(after)]));
                (content_type, before.chain(body).chain(after).boxed())
            }
        };
        let (body, broken, progress) = streamed(body);
        self.post(path, user, &content_type, body, Some((&broken, &progress)), operation).await
    }

    /// Writes a file whose bytes are all there.
    pub(crate) async fn upload_whole(
        &self,
        path: &GuestPath,
        bytes: Bytes,
        user: Option<&UserName>,
        form: Form,
        operation: Operation,
    ) -> Result<()> {
        match form {
            Form::Raw => {
                self.post(path, user, "application/octet-stream", whole(bytes), None, operation).await
            }
            Form::Multipart => {
                let (content_type, before, after) = part();
                let body = whole([before, bytes, after].concat());
                self.post(path, user, &content_type, body, None, operation).await
            }
        }
    }

    async fn post(
        &self,
        path: &GuestPath,
        user: Option<&UserName>,
        content_type: &str,
        body: RequestBody,
        source: Option<(&BodyError, &Progress)>,
        operation: Operation,
    ) -> Result<()> {
        let headers = [(CONTENT_TYPE.as_str(), content_type)];
        let place = place(FILES, path, user, operation)?;
        let request = request(Method::POST, &place, None, &headers, body, operation)?;
        let sent = tokio::select! {
            sent = self.send(request, UPLOAD, operation) => sent,
            error = patience::ends(self, source.map(|(_, progress)| progress), operation) => Err(error),
        };
        // The caller's own error is the answer, whatever became of the connection.
        if let Some(error) = source.and_then(|(broken, _)| broken.take()) {
            return Err(error);
        }
        let response = sent?;
        if response.status() != StatusCode::OK {
            return Err(self.http_error(operation, path, response).await);
        }
        self.collect(response.into_body(), operation).await.map(drop)
    }
}

/// A form's type, and what comes before and after its one part. The path is in the query.
fn part() -> (String, Bytes, Bytes) {
    let boundary = format!("sandbar-{}{}", word(), word());
    let before = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file\"\r\nContent-Type: application/octet-stream\r\n\r\n"
    );
    let after = format!("\r\n--{boundary}--\r\n");
    (format!("multipart/form-data; boundary={boundary}"), before.into(), after.into())
}
