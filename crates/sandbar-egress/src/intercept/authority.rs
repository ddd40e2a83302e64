use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use sandbar_core::{Error, ErrorKind, Hostname, Result};

use super::leaves::Leaves;
use super::sealed::{Parts, SealedAuthority};

/// How long the authority is good for: longer than any sandbox lives. It is trusted in one sandbox, and its key is in one gateway.
const LIFE: Duration = Duration::from_secs(10 * 365 * DAY);
/// How much earlier than now certificates begin, for guests whose clock is behind.
pub(super) const BEFORE: Duration = Duration::from_secs(DAY);
pub(super) const DAY: u64 = 24 * 60 * 60;
/// Longest label in bytes: what fits into a common name (64) with what stands before it.
const MAX_LABEL: usize = 40;

/// The certificate authority of one sandbox. Its key stays with the gateway; the sandbox gets the certificate.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    parts: Parts,
    leaves: Leaves,
}

impl Authority {
    /// A new one, with a new key. `label` tells it from others in a list of certificates: the sandbox's id.
    pub fn generate(label: &str) -> Result<Self> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(broken)?;
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
        let label: String = label.chars().filter(is_plain).take(MAX_LABEL).collect();
        let began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let certificate = params(&label, began).self_signed(&key).map_err(broken)?.der().to_vec();
        Self::new(Parts { label, began, key: key.serialize_der(), certificate })
    }

    /// The one that was sealed.
    pub fn from_sealed(bytes: &[u8]) -> Result<Self> {
        Self::new(Parts::read(bytes)?)
    }

    /// All of it, with its key, for a file that only the owner of the sandbox can read: so a gateway that takes over speaks for the same authority.
    pub fn to_sealed(&self) -> SealedAuthority {
        self.parts.write()
    }

    /// The certificate as PEM, for the list of trusted ones in the sandbox.
    pub fn certificate_pem(&self) -> String {
        /// Bytes of base64 in a line (RFC 7468, section 2).
        const LINE: usize = 64;
        let text = STANDARD.encode(&self.parts.certificate);
        let lines = text.as_bytes().chunks(LINE).map(|line| format!("{}\n", String::from_utf8_lossy(line)));
        format!("-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n", lines.collect::<String>())
    }

    /// The certificate as it is.
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.parts.certificate.clone().into()
    }

    /// How to speak TLS in the place of this host.
    pub(super) fn server(&self, name: &Hostname) -> Result<Arc<ServerConfig>> {
        self.leaves.server(name, &self.issuer)
    }

    fn new(parts: Parts) -> Result<Self> {
        let der = rustls::pki_types::PrivatePkcs8KeyDer::from(parts.key.as_slice());
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ECDSA_P256_SHA256).map_err(broken)?;
        Ok(Self {
            issuer: Issuer::new(params(&parts.label, parts.began), key),
            parts,
            leaves: Leaves::new()?,
        })
    }
}

/// The same for the same label and time, so that what is signed after a restart names the same issuer.
fn params(label: &str, began: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, "Sandbar");
    subject.push(DnType::CommonName, format!("Sandbar egress {label}").trim_end());
    params.distinguished_name = subject;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let began = date_time_ymd(1970, 1, 1) + Duration::from_secs(began);
    params.not_before = began - BEFORE;
    params.not_after = began + LIFE;
    params
}

/// The causes name algorithms and formats, and never hold a key.
pub(super) fn broken(cause: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Unexpected, "make certificate", "the certificate could not be made")
        .with_source(cause)
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("label", &self.parts.label).finish_non_exhaustive()
    }
}
