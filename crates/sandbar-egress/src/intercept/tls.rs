use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use sandbar_core::{HeaderInjection, Hostname};
use tokio_rustls::TlsConnector;

use crate::http::{ConnectError, Link, Transport};
use crate::{Dialer, Ruling};

/// How long a handshake may take, with either side.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(10);

/// Within TLS, to a host whose certificate is good. Headers are injected.
pub(super) struct Tls {
    pub(super) name: Hostname,
    pub(super) dial: Arc<dyn Dialer>,
    pub(super) client: Arc<ClientConfig>,
}

#[async_trait]
impl Transport for Tls {
    fn scheme(&self) -> &'static str {
        "https"
    }

    fn default_port(&self) -> u16 {
        443
    }

    fn headers<'a>(&self, ruling: &'a Ruling) -> &'a [HeaderInjection] {
        ruling.inject.as_deref().unwrap_or_default()
    }

    async fn connect(&self) -> Result<Link, ConnectError> {
        let failed = |why: String| ConnectError::Tls(format!("with the host: {why}"));
        let name = ServerName::try_from(self.name.to_string()).map_err(|why| failed(why.to_string()))?;
        let stream = self.dial.dial().await.map_err(ConnectError::Dial)?;
        let handshake = TlsConnector::from(self.client.clone()).connect(name, stream);
        match tokio::time::timeout(HANDSHAKE, handshake).await {
            Ok(Ok(stream)) => Ok(Box::new(stream)),
            Ok(Err(why)) => Err(failed(why.to_string())),
            Err(_) => Err(failed("it took too long".to_owned())),
        }
    }
}
