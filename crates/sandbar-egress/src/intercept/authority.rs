use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
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
const ORGANIZATION: &str = "Sandbar";
/// Last numbers of the identifiers of what a subject consists of (RFC 5280, appendix A: `2.5.4.x`).
const ORGANIZATION_NAME: u8 = 10;
const COMMON_NAME: u8 = 3;

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

    /// What OpenSSL finds the certificate by in a folder of trusted ones: `<this>.0` (`X509_NAME_hash`: the first bytes of the SHA-1 of the subject in a
    /// canonical form, backwards).
    pub fn subject_hash(&self) -> String {
        let parts =
            [(ORGANIZATION_NAME, ORGANIZATION.to_owned()), (COMMON_NAME, common_name(&self.parts.label))];
        let canonical: Vec<u8> = parts.iter().flat_map(|(kind, text)| canonical_part(*kind, text)).collect();
        let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &canonical);
        let first = hash.as_ref().first_chunk().map_or(0, |bytes: &[u8; 4]| u32::from_le_bytes(*bytes));
        format!("{first:08x}")
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
    subject.push(DnType::OrganizationName, ORGANIZATION);
    subject.push(DnType::CommonName, common_name(label));
    params.distinguished_name = subject;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let began = date_time_ymd(1970, 1, 1) + Duration::from_secs(began);
    params.not_before = began - BEFORE;
    params.not_after = began + LIFE;
    params
}

fn common_name(label: &str) -> String {
    format!("Sandbar egress {label}").trim_end().to_owned()
}

/// A part of a name as DER, in lower case: each is a set of one pair. Spaces are single already, and all is shorter than 128 bytes.
fn canonical_part(kind: u8, text: &str) -> Vec<u8> {
    const UTF8_STRING: u8 = 0x0c;
    let text = text.to_ascii_lowercase();
    let mut pair = vec![0x06, 0x03, 0x55, 0x04, kind];
    pair.extend(tagged(UTF8_STRING, text.as_bytes()));
    tagged(0x31, &tagged(0x30, &pair))
}

fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap_or(0);
    [&[tag, length], content].concat()
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
