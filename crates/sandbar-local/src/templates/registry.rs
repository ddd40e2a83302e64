//! Images from a registry. What is fetched becomes an image layout aside, which is imported as any other: nothing of it is believed but by its digest.

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use oci_client::client::{Client, ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::secrets::RegistryAuth;
use oci_client::{Reference, RegistryOperation};
use rustix::fs::{Mode, OFlags, mkdirat, openat};
use sandbar_core::{Error, ErrorKind, Result};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWrite;

use super::image::{self, Blob, Fetched};
use super::source::{ImportListener, ImportProgress};
use crate::config::BACKEND;
use crate::error::{fail, io_error};
use crate::worker::hex;

const OPERATION: &str = "pull template";
/// How long a registry may take to be reached.
const CONNECT: Duration = Duration::from_secs(30);
/// How long it may send nothing.
const SILENCE: Duration = Duration::from_secs(60);
/// Most bytes that are fetched for one image: several times the largest that people use.
const MAX_BYTES: u64 = 256 << 30;
/// Most indexes in each other.
const MAX_NESTING: usize = 4;
/// Between two words on how far it is, in bytes.
const TOLD: u64 = 1 << 20;
/// The kinds of documents that are asked for.
const ACCEPTED: &[&str] = &[
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];

/// How to speak to a registry.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct PullOptions {
    /// User and password, or a token in the password's place; absent means as anybody.
    pub login: Option<(String, String)>,
}

impl PullOptions {
    /// As anybody.
    pub fn new() -> Self {
        Self::default()
    }

    /// With a user's name and password.
    pub fn with_login(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.login = Some((user.into(), password.into()));
        self
    }
}

impl fmt::Debug for PullOptions {
    /// Without the login.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PullOptions").field("has_login", &self.login.is_some()).finish()
    }
}

/// Fetches an image into the empty folder `into`, as a layout; layers that `has` knows by their name are left out.
pub(super) async fn fetch(
    reference: &str,
    options: &PullOptions,
    into: &OwnedFd,
    has: &(dyn Fn(&str) -> bool + Send + Sync),
    listener: Option<&ImportListener>,
) -> Result<()> {
    let named: Reference = reference.parse().map_err(|cause| {
        Error::invalid(OPERATION, format!("`{}` names no image: {cause}", reference.escape_debug()))
            .with_backend(BACKEND)
            .with_hint(
                "expected `HOST/NAME:TAG` or `HOST/NAME@DIGEST`, such as `registry.example.com/team/app:1`",
            )
    })?;
    let auth = match &options.login {
        Some((user, password)) => RegistryAuth::Basic(user.clone(), password.clone()),
        None => RegistryAuth::Anonymous,
    };
    let client = client(&named)?;
    let broken = |cause: OciDistributionError| failure(&named, &cause);
    client.auth(&named, &auth, RegistryOperation::Pull).await.map_err(broken)?;
    for folder in ["blobs", "blobs/sha256"] {
        mkdirat(into, folder, Mode::RWXU)
            .map_err(|cause| io_error(OPERATION, "a folder for the image", cause))?;
    }
    let mut at = named.clone();
    let mut first = None;
    for _ in 0..=MAX_NESTING {
        let (text, _) = client.pull_manifest_raw(&at, &auth, ACCEPTED).await.map_err(broken)?;
        let digest = format!("sha256:{}", keep(into, &text)?);
        if at.digest().is_some_and(|wanted| wanted != digest) {
            return Err(image::bad(&format!("the registry sent something else for `{at}`")));
        }
        first.get_or_insert_with(|| digest.clone());
        match image::fetched(&text)? {
            Fetched::Index(digest) => at = at.clone_with_digest(digest),
            Fetched::Image { config, layers } => {
                let mut fetch = Fetch { client: &client, named: &named, into, listener, left: MAX_BYTES };
                fetch.blob(&config, "the configuration").await?;
                let chain = image::layer_chain(into.as_fd(), &config.digest)?;
                let count = layers.len();
                for (number, layer) in layers.iter().enumerate() {
                    if !chain.get(number).is_some_and(|id| has(id)) {
                        fetch.blob(layer, &format!("fetching layer {} of {count}", number + 1)).await?;
                    }
                }
                let index = json!({ "manifests": [{ "digest": first }] }).to_string();
                write(into, "index.json", index.as_bytes())?;
                return write(into, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#);
            }
        }
    }
    Err(image::bad("its index has more levels than are read"))
}

/// A registry on this machine is spoken to without TLS, as the field does.
fn client(named: &Reference) -> Result<Client> {
    // Somebody else in this process may have chosen one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let registry = named.resolve_registry();
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    let is_here = host == "localhost"
        || host
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback());
    let plain = if is_here { vec![registry.to_owned()] } else { Vec::new() };
    let config = ClientConfig {
        protocol: ClientProtocol::HttpsExcept(plain),
        connect_timeout: Some(CONNECT),
        read_timeout: Some(SILENCE),
        user_agent: concat!("sandbar/", env!("CARGO_PKG_VERSION")),
        ..ClientConfig::default()
    };
    Client::try_from(config).map_err(|cause| failure(named, &cause))
}

struct Fetch<'a> {
    client: &'a Client,
    named: &'a Reference,
    into: &'a OwnedFd,
    listener: Option<&'a ImportListener>,
    /// Bytes that may still come.
    left: u64,
}

impl Fetch<'_> {
    async fn blob(&mut self, blob: &Blob, step: &str) -> Result<()> {
        let size =
            blob.size.ok_or_else(|| image::bad(&format!("the size of `{}` is missing", blob.digest)))?;
        self.left = self.left.checked_sub(size).ok_or_else(|| {
            fail(ErrorKind::LimitExceeded, OPERATION, format!("the image has more than {MAX_BYTES} bytes"))
        })?;
        let place = image::place(&blob.digest)?;
        // The same layer twice is fetched once.
        let Some(file) = create(self.into, &place)? else { return Ok(()) };
        let out = Counted { file, left: size, written: 0, told: 0, step, listener: self.listener };
        let pulled = self.client.pull_blob(self.named, blob.digest.as_str(), out).await;
        pulled.map_err(|cause| failure(self.named, &cause))
    }
}

/// A file that takes no more than it was to hold.
struct Counted<'a> {
    file: File,
    left: u64,
    written: u64,
    told: u64,
    step: &'a str,
    listener: Option<&'a ImportListener>,
}

impl AsyncWrite for Counted<'_> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let length = bytes.len() as u64;
        if length > self.left {
            return Poll::Ready(Err(io::Error::other("it is longer than its size says")));
        }
        self.file.write_all(bytes)?;
        self.left -= length;
        self.written += length;
        if let Some(listener) = self.listener
            && self.written - self.told >= TOLD
        {
            self.told = self.written;
            listener(ImportProgress { step: self.step.to_owned(), entries: 0, bytes: self.written });
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Keeps a document under its digest, and answers that.
fn keep(into: &OwnedFd, text: &[u8]) -> Result<String> {
    let mut hash = Sha256::new();
    hash.update(text);
    let digits = hex(hash);
    write(into, &format!("blobs/sha256/{digits}"), text)?;
    Ok(digits)
}

fn write(into: &OwnedFd, place: &str, text: &[u8]) -> Result<()> {
    match create(into, place)? {
        Some(mut file) => {
            file.write_all(text).map_err(|cause| io_error(OPERATION, "a file of the image", cause))
        }
        None => Ok(()),
    }
}

/// `None` means that it is there already.
fn create(into: &OwnedFd, place: &str) -> Result<Option<File>> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(into, place, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(Some(file.into())),
        Err(rustix::io::Errno::EXIST) => Ok(None),
        Err(cause) => Err(io_error(OPERATION, "a file of the image", cause)),
    }
}

/// What the registry or the way to it did not do. Addresses may carry signatures in what follows a `?`, which is nobody's business.
fn failure(named: &Reference, cause: &OciDistributionError) -> Error {
    use OciDistributionError as Cause;
    let of = |kind, why: String| fail(kind, OPERATION, format!("image `{named}`: {why}"));
    match cause {
        Cause::AuthenticationFailure(_) | Cause::UnauthorizedError { .. } => of(
            ErrorKind::Unauthenticated,
            "the registry does not let this user have it, or there is no such image".into(),
        )
        .with_hint("set `SANDBAR_REGISTRY_USER` and `SANDBAR_REGISTRY_PASSWORD`"),
        Cause::ImageManifestNotFoundError(_) => {
            of(ErrorKind::NotFound, "the registry has no such image".into())
        }
        Cause::RegistryError { envelope, .. }
            if envelope.errors.iter().any(|error| {
                matches!(error.code, OciErrorCode::ManifestUnknown | OciErrorCode::NameUnknown)
            }) =>
        {
            of(ErrorKind::NotFound, "the registry has no such image".into())
        }
        Cause::RequestError(request) if request.is_timeout() => {
            of(ErrorKind::Timeout, "the registry did not answer in time".into())
        }
        Cause::RequestError(request) if request.is_connect() => of(
            ErrorKind::Unavailable,
            format!("the registry can't be reached: {}", reason(request)),
        )
        .with_hint(
            "look at the network; what was fetched elsewhere is imported with `sandbar template import`",
        ),
        Cause::DigestError(_) => {
            of(ErrorKind::InvalidInput, "what the registry sent is not what its digest says".into())
        }
        Cause::IoError(cause) => of(ErrorKind::Unexpected, cause.to_string()),
        other => of(ErrorKind::Unavailable, without_queries(&other.to_string())),
    }
}

/// The innermost cause: the outer ones repeat the address.
fn reason(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    without_queries(&innermost.to_string())
}

fn without_queries(text: &str) -> String {
    let words = text.split(' ').map(|word| match word.split_once('?') {
        Some((start, rest)) if start.contains("://") && !rest.is_empty() => format!("{start}?..."),
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ").escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_secret_is_told() {
        let options = PullOptions::new().with_login("me", "s3cret");
        assert!(!format!("{options:?}").contains("s3cret"));
        let text = without_queries("url https://example.test/blob?signature=s3cret, code: 403");
        assert!(text.contains("https://example.test/blob?...") && !text.contains("s3cret"), "{text}");
    }
}
