//! Whom `https` trusts: the system's roots, as other programs there do, and those that were given.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_platform_verifier::Verifier;
use sandbar_core::{Error, ErrorKind, Result};

use crate::Config;

/// The settings of TLS.
pub(crate) fn settings(config: &Config) -> Result<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let trust = Trust { provider: provider.clone(), given: given(config)?, verifier: OnceLock::new() };
    let mut settings = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| {
            Error::new(ErrorKind::Config, "configure", format!("TLS: {error}")).with_backend(config.backend)
        })?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(trust))
        .with_no_client_auth();
    settings.alpn_protocols = if config.http1_only {
        vec![b"http/1.1".to_vec()]
    } else {
        vec![b"h2".to_vec(), b"http/1.1".to_vec()]
    };
    Ok(settings)
}

/// The system's verifier, made when the first certificate comes: whoever only talks to a server on this machine needs no roots, need not wait for
/// some hundred of them to be read, and minimal images have none.
#[derive(Debug)]
struct Trust {
    provider: Arc<CryptoProvider>,
    given: Vec<CertificateDer<'static>>,
    verifier: OnceLock<Result<Verifier, rustls::Error>>,
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let made = || Verifier::new_with_extra_roots(self.given.iter().cloned(), self.provider.clone());
        match self.verifier.get_or_init(made) {
            Ok(verifier) => {
                verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            Err(error) => Err(error.clone()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn given(config: &Config) -> Result<Vec<CertificateDer<'static>>> {
    let mut given = Vec::new();
    for pem in &config.roots {
        let before = given.len();
        for root in CertificateDer::pem_slice_iter(pem) {
            let root = root.map_err(|error| unreadable(config, &error.to_string()))?;
            RootCertStore::empty()
                .add(root.clone())
                .map_err(|error| unreadable(config, &error.to_string()))?;
            given.push(root);
        }
        if given.len() == before {
            return Err(unreadable(config, "there is none in it"));
        }
    }
    Ok(given)
}

fn unreadable(config: &Config, why: &str) -> Error {
    Error::new(ErrorKind::Config, "configure", format!("the certificates to trust can't be read: {why}"))
        .with_backend(config.backend)
        .with_hint("they have to be PEM: lines between `-----BEGIN CERTIFICATE-----` and `-----END CERTIFICATE-----`")
}
