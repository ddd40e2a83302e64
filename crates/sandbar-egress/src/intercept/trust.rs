use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use sandbar_core::{Error, ErrorKind, Result};

/// Where systems keep the list of authorities that they trust: Debian and its kin, Fedora and its kin, openSUSE, Alpine.
const LISTS: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Whom the gateway believes that it speaks to the host it means.
#[derive(Clone)]
pub struct Trust(Arc<ClientConfig>);

impl Trust {
    /// Whom this machine trusts.
    pub fn host() -> Result<Self> {
        let list = LISTS.iter().find(|path| Path::new(path).is_file()).ok_or_else(|| {
            Error::new(
                ErrorKind::Config,
                "read trusted authorities",
                "this machine has no list of certificate authorities",
            )
            .with_hint("install the package `ca-certificates`")
        })?;
        let read = |cause| {
            Error::new(ErrorKind::Config, "read trusted authorities", format!("`{list}` can't be read"))
                .with_source(cause)
        };
        let certificates = CertificateDer::pem_file_iter(list).map_err(read)?;
        Self::of(certificates.filter_map(std::result::Result::ok))
    }

    /// These authorities and no other.
    pub fn of(authorities: impl IntoIterator<Item = CertificateDer<'static>>) -> Result<Self> {
        let refused = |why: &str| Error::new(ErrorKind::Config, "read trusted authorities", why);
        let mut roots = RootCertStore::empty();
        // A list may hold what cannot be read any more; the others count.
        roots.add_parsable_certificates(authorities);
        if roots.is_empty() {
            return Err(refused("the list of certificate authorities holds none that can be read"));
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|cause| refused("TLS can't be set up").with_source(cause))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    pub(super) fn client(&self) -> Arc<ClientConfig> {
        self.0.clone()
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust").finish_non_exhaustive()
    }
}
