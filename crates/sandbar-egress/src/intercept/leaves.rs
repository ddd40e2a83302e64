use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use sandbar_core::{Hostname, Result};

use super::authority::{BEFORE, DAY, broken};

/// How long a host's certificate is good for; some clients refuse more than 398 days.
const LIFE: Duration = Duration::from_secs(90 * DAY);
/// A certificate older than that is made anew.
const RENEW: Duration = Duration::from_secs(30 * DAY);
/// Most certificates that are kept: as many hosts as a program talks to at once, with room.
const MAX_LEAVES: usize = 256;

/// The certificates of hosts, made when they are first asked for. They share a key, which is nowhere but here.
pub(super) struct Leaves {
    key: KeyPair,
    signer: Arc<dyn SigningKey>,
    kept: Mutex<HashMap<Hostname, Leaf>>,
}

struct Leaf {
    made: Instant,
    server: Arc<ServerConfig>,
}

impl Leaves {
    pub(super) fn new() -> Result<Self> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(broken)?;
        let der = PrivatePkcs8KeyDer::from(key.serialize_der());
        let signer = ring::sign::any_ecdsa_type(&der.into()).map_err(broken)?;
        Ok(Self { key, signer, kept: Mutex::default() })
    }

    pub(super) fn server(
        &self,
        name: &Hostname,
        issuer: &Issuer<'static, KeyPair>,
    ) -> Result<Arc<ServerConfig>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(leaf) = kept.get(name).filter(|leaf| leaf.made.elapsed() < RENEW) {
            return Ok(leaf.server.clone());
        }
        if kept.len() >= MAX_LEAVES {
            let oldest = kept.iter().min_by_key(|(_, leaf)| leaf.made).map(|(name, _)| name.clone());
            oldest.and_then(|name| kept.remove(&name));
        }
        let server = self.make(name, issuer)?;
        kept.insert(name.clone(), Leaf { made: Instant::now(), server: server.clone() });
        Ok(server)
    }

    fn make(&self, name: &Hostname, issuer: &Issuer<'static, KeyPair>) -> Result<Arc<ServerConfig>> {
        let mut params = CertificateParams::new([name.to_string()]).map_err(broken)?;
        let mut subject = DistinguishedName::new();
        // A name may be longer than a common name can be; clients look at the alternative name.
        subject.push(DnType::CommonName, "Sandbar egress");
        params.distinguished_name = subject;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = date_time_ymd(1970, 1, 1) + Duration::from_secs(now.as_secs());
        params.not_before = now - BEFORE;
        params.not_after = now + LIFE;
        let leaf = params.signed_by(&self.key, issuer).map_err(broken)?;
        let certified = CertifiedKey::new(vec![leaf.der().clone()], self.signer.clone());
        let mut server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(broken)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        // A connection inside the machine is cheap to make; what is not kept can't be asked for by somebody else.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Arc::new(server))
    }
}
