use async_trait::async_trait;
use http::header::{CONTENT_TYPE, TE};
use http::{Method, StatusCode};
use sandbar_core::{Archive, ByteStream, Error, GuestPath, ImportReport, Result};
use sandbar_wire::envd::ArchiveReport;

use crate::body::{streamed, whole};
use crate::client::GuestClient;
use crate::fault;
use crate::files::{content, only_read, place};
use crate::patience;
use crate::rpc::request;
use crate::upload::UPLOAD;

const EXPORT: &str = "export";
const IMPORT: &str = "import";
/// Where the agent serves trees.
const ARCHIVE: &str = "/sandbar/archive";

#[async_trait]
impl Archive for GuestClient {
    async fn export(&self, path: &GuestPath) -> Result<ByteStream> {
        let operation = self.operation(EXPORT);
        if path.as_bytes() == b"/" {
            return Err(Error::invalid(
                operation.name,
                "`/` can't be exported: name a folder or file below it",
            )
            .with_backend(operation.backend));
        }
        // For the reason why it ends early, if it does.
        let headers = [(TE.as_str(), "trailers")];
        let request = request(
            Method::GET,
            &place(ARCHIVE, path, None, operation)?,
            None,
            &headers,
            whole(""),
            operation,
        )?;
        let response = tokio::select! {
            response = self.send(request, UPLOAD, operation) => response,
            error = patience::ends(self, None, operation) => Err(error),
        };
        let response = response.map_err(only_read)?;
        match response.status() {
            StatusCode::OK => Ok(content(self.clone(), response, operation)),
            _ => Err(self.http_error(operation, path, response).await),
        }
    }

    async fn import(&self, path: &GuestPath, tar: ByteStream) -> Result<ImportReport> {
        let operation = self.operation(IMPORT);
        if path.as_bytes() == b"/" {
            return Err(Error::invalid(
                operation.name,
                "nothing can be imported at `/`: name a folder below it",
            )
            .with_backend(operation.backend));
        }
        self.import_anywhere(path, tar).await
    }
}

impl GuestClient {
    /// As [`import`](Archive::import), and into the root folder itself too: what a build copies there is meant to be there.
    pub async fn import_anywhere(&self, path: &GuestPath, tar: ByteStream) -> Result<ImportReport> {
        let operation = self.operation(IMPORT);
        let (body, broken, progress) = streamed(tar);
        let headers = [(CONTENT_TYPE.as_str(), "application/x-tar")];
        let mut place = place(ARCHIVE, path, None, operation)?;
        if path.as_bytes() == b"/" {
            place.push_str("&root=merge");
        }
        let request = request(Method::POST, &place, None, &headers, body, operation)?;
        let sent = tokio::select! {
            sent = self.send(request, UPLOAD, operation) => sent,
            error = patience::ends(self, Some(&progress), operation) => Err(error),
        };
        // The caller's own error is the answer, whatever became of the connection.
        if let Some(error) = broken.take() {
            return Err(error);
        }
        let response = sent?;
        if response.status() != StatusCode::OK {
            return Err(self.http_error(operation, path, response).await);
        }
        let answer = self.collect(response.into_body(), operation).await?;
        let ArchiveReport { entries, bytes } =
            serde_json::from_slice(&answer).map_err(|cause| fault::nonsense(operation, &cause))?;
        Ok(ImportReport { entries, bytes })
    }
}
