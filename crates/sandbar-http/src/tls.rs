//! Whom `https` trusts: the system's roots, as other programs there do, and those that were given.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls_platform_verifier::Verifier;
use sandbar_core::{Error, ErrorKind, Result};

use crate::Config;

/// The settings, and why no `https` address can be reached with them, if so: whoever only talks to a server on this machine needs no roots,
/// and minimal images have none.
pub(crate) fn settings(config: &Config) -> Result<(ClientConfig, Option<String>)> {
    let provider = Arc::new(ring::default_provider());
    let (verifier, lack) = match Verifier::new_with_extra_roots(roots(config)?, provider.clone()) {
        Ok(verifier) => (Some(verifier), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let builder = builder(&provider, config.backend)?;
    let mut settings = match verifier {
        Some(verifier) => builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)),
        None => builder.with_root_certificates(RootCertStore::empty()),
    }
    .with_no_client_auth();
    settings.alpn_protocols = if config.http1_only {
        vec![b"http/1.1".to_vec()]
    } else {
        vec![b"h2".to_vec(), b"http/1.1".to_vec()]
    };
    Ok((settings, lack))
}

fn builder(
    provider: &Arc<CryptoProvider>,
    backend: &'static str,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>> {
    ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().map_err(
        |error| Error::new(ErrorKind::Config, "configure", format!("TLS: {error}")).with_backend(backend),
    )
}

fn roots(config: &Config) -> Result<Vec<CertificateDer<'static>>> {
    let mut roots = Vec::new();
    for pem in &config.roots {
        let before = roots.len();
        for root in CertificateDer::pem_slice_iter(pem) {
            roots.push(root.map_err(|error| unreadable(config, &error.to_string()))?);
        }
        if roots.len() == before {
            return Err(unreadable(config, "there is none in it"));
        }
    }
    Ok(roots)
}

fn unreadable(config: &Config, why: &str) -> Error {
    Error::new(ErrorKind::Config, "configure", format!("the certificates to trust can't be read: {why}"))
        .with_backend(config.backend)
        .with_hint("they have to be PEM: lines between `-----BEGIN CERTIFICATE-----` and `-----END CERTIFICATE-----`")
}
