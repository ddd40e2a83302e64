use async_trait::async_trait;
use http::header::{CONTENT_TYPE, TE};
use http::{Method, StatusCode};
use sandbar_core::{Archive, ByteStream, Error, GuestPath, ImportReport, Result};
use sandbar_wire::envd::ArchiveReport;

use super::body::{streamed, whole};
use super::fault;
use super::files::{UPLOAD, content, only_read, place};
use super::patience;
use super::processes::Shared;
use super::rpc::request;
use crate::config::BACKEND;

const EXPORT: &str = "export";
const IMPORT: &str = "import";
/// Where the agent serves trees.
const ARCHIVE: &str = "/sandbar/archive";

#[async_trait]
impl Archive for Shared {
    async fn export(&self, path: &GuestPath) -> Result<ByteStream> {
        if path.as_bytes() == b"/" {
            return Err(Error::invalid(EXPORT, "`/` can't be exported: name a folder or file below it")
                .with_backend(BACKEND));
        }
        // For the reason why it ends early, if it does.
        let headers = [(TE.as_str(), "trailers")];
        let request = request(Method::GET, &place(ARCHIVE, path, None, EXPORT)?, None, &headers, whole(""))?;
        let response = tokio::select! {
            response = self.0.send(request, UPLOAD, EXPORT) => response,
            error = patience::ends(&self.0, None, EXPORT) => Err(error),
        };
        let response = response.map_err(only_read)?;
        match response.status() {
            StatusCode::OK => Ok(content(std::sync::Arc::clone(&self.0), response, EXPORT)),
            _ => Err(self.http_error(EXPORT, path, response).await),
        }
    }

    async fn import(&self, path: &GuestPath, tar: ByteStream) -> Result<ImportReport> {
        if path.as_bytes() == b"/" {
            return Err(Error::invalid(IMPORT, "nothing can be imported at `/`: name a folder below it")
                .with_backend(BACKEND));
        }
        self.import_anywhere(path, tar).await
    }
}

impl Shared {
    /// As [`import`](Archive::import), and into the root folder itself too: what a build copies there is meant to be there.
    pub(crate) async fn import_anywhere(&self, path: &GuestPath, tar: ByteStream) -> Result<ImportReport> {
        let (body, broken, progress) = streamed(tar);
        let headers = [(CONTENT_TYPE.as_str(), "application/x-tar")];
        let mut place = place(ARCHIVE, path, None, IMPORT)?;
        if path.as_bytes() == b"/" {
            place.push_str("&root=merge");
        }
        let request = request(Method::POST, &place, None, &headers, body)?;
        let sent = tokio::select! {
            sent = self.0.send(request, UPLOAD, IMPORT) => sent,
            error = patience::ends(&self.0, Some(&progress), IMPORT) => Err(error),
        };
        // The caller's own error is the answer, whatever became of the connection.
        if let Some(error) = broken.take() {
            return Err(error);
        }
        let response = sent?;
        if response.status() != StatusCode::OK {
            return Err(self.http_error(IMPORT, path, response).await);
        }
        let answer = self.0.collect(response.into_body(), IMPORT).await?;
        let ArchiveReport { entries, bytes } =
            serde_json::from_slice(&answer).map_err(|cause| fault::nonsense(IMPORT, &cause))?;
        Ok(ImportReport { entries, bytes })
    }
}
