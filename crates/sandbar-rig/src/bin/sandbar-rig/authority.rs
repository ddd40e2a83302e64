//! A certificate authority for tests, and certificates for whatever name is asked for.

use std::collections::HashMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::ledger::lock;
use crate::run;

/// Configurations that are kept; a test of many names starts over.
const KEPT: usize = 1_000;

/// Signs.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    made: Mutex<HashMap<String, Arc<ServerConfig>>>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes one, and writes its certificate to a file.
    pub(crate) fn new(file: &Path) -> Result<Self, String> {
        let key = KeyPair::generate().map_err(|e| format!("make a key: {e}"))?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "sandbar rig");
        let certificate = params.self_signed(&key).map_err(|e| format!("sign a certificate: {e}"))?;
        std::fs::write(file, certificate.pem()).map_err(|e| format!("write `{}`: {e}", file.display()))?;
        std::fs::set_permissions(file, Permissions::from_mode(run::READABLE))
            .map_err(|e| format!("open `{}` to all: {e}", file.display()))?;
        Ok(Self { issuer: Issuer::new(params, key), made: Mutex::default() })
    }

    /// A configuration that shows a certificate for this name or address, whatever it is.
    pub(crate) fn config(&self, name: &str) -> Result<Arc<ServerConfig>, String> {
        if let Some(config) = lock(&self.made).get(name) {
            return Ok(Arc::clone(config));
        }
        let config = self.make(name)?;
        let mut made = lock(&self.made);
        if made.len() >= KEPT {
            made.clear();
        }
        made.insert(name.to_owned(), Arc::clone(&config));
        Ok(config)
    }

    fn make(&self, name: &str) -> Result<Arc<ServerConfig>, String> {
        let key = KeyPair::generate().map_err(|e| format!("make a key: {e}"))?;
        let mut params =
            CertificateParams::new([name.to_owned()]).map_err(|e| format!("name `{name}`: {e}"))?;
        params.use_authority_key_identifier_extension = true;
        let certificate =
            params.signed_by(&key, &self.issuer).map_err(|e| format!("sign for `{name}`: {e}"))?;
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| {
                config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key)
            })
            .map_err(|e| format!("configure TLS for `{name}`: {e}"))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec(), b"dot".to_vec()];
        Ok(Arc::new(config))
    }
}
