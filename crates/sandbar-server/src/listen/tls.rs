use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sandbar_core::{Error, ErrorKind, Result};
use tokio_rustls::TlsAcceptor;

use crate::config::TlsFiles;

/// How often is looked, at most, whether the files changed: a renewed certificate is used without a restart.
const LOOK: Duration = Duration::from_secs(5);

/// Certificate and key, as the files have them.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsFiles,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    config: Arc<ServerConfig>,
    changed: Option<(SystemTime, SystemTime)>,
    looked: Instant,
}

impl Tls {
    /// Reads the files.
    pub(crate) fn open(files: TlsFiles) -> Result<Self> {
        let current = Current { changed: changed(&files), config: read(&files)?, looked: Instant::now() };
        Ok(Self { files, current: Mutex::new(current) })
    }

    /// What the next connection is accepted with.
    pub(super) async fn acceptor(&self) -> TlsAcceptor {
        let seen = {
            let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            if current.looked.elapsed() < LOOK {
                return TlsAcceptor::from(Arc::clone(&current.config));
            }
            current.looked = Instant::now();
            current.changed
        };
        let files = self.files.clone();
        let look = tokio::task::spawn_blocking(move || {
            let now = changed(&files);
            (now != seen).then(|| (now, read(&files)))
        });
        let looked = look.await.ok().flatten();
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match looked {
            Some((now, Ok(config))) => {
                tracing::info!("the certificate was read again");
                (current.config, current.changed) = (config, now);
            }
            // Half written, perhaps: the old one goes on.
            Some((_, Err(error))) => tracing::warn!(%error, "the changed certificate can't be used"),
            None => {}
        }
        TlsAcceptor::from(Arc::clone(&current.config))
    }
}

fn changed(files: &TlsFiles) -> Option<(SystemTime, SystemTime)> {
    let changed = |path: &Path| std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    Some((changed(&files.certificate)?, changed(&files.key)?))
}

fn read(files: &TlsFiles) -> Result<Arc<ServerConfig>> {
    let unusable = |path: &Path, cause: String| {
        Error::new(ErrorKind::Config, "serve", format!("`{}` can't be used for TLS: {cause}", path.display()))
            .with_hint("expected PEM: --tls-cert has the certificate chain, --tls-key its private key")
    };
    let chain: Vec<_> = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect)
        .map_err(|e| unusable(&files.certificate, e.to_string()))?;
    if chain.is_empty() {
        return Err(unusable(&files.certificate, "there is no certificate in it".to_owned()));
    }
    // What is wrong with a key is not repeated: the message might have some of it.
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|_| unusable(&files.key, "there is no private key to be read in it".to_owned()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| unusable(&files.certificate, e.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|e| unusable(&files.certificate, e.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
