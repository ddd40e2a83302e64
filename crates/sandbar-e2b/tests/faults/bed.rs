use std::error::Error as _;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use sandbar::{Error, MemoryProvider, SandboxProvider};
use sandbar_e2b::{E2bConfig, E2bProvider};
use sandbar_server::{CodeInterpreter, DefaultEgress, KeyStore, Limits, Server, ServerConfig};
use tokio::sync::oneshot;

/// A server over the reference backend.
pub(crate) struct Bed {
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
    /// What is behind the server.
    pub(crate) behind: Arc<dyn SandboxProvider>,
    _folder: tempfile::TempDir,
    _stop: oneshot::Sender<()>,
}

impl Bed {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let behind: Arc<dyn SandboxProvider> = Arc::new(MemoryProvider::new());
        let config = config(folder.path());
        let key = KeyStore::open(&config.data).expect("the store opens").create("test", None).await;
        let key = key.expect("a key").text;
        let server = Server::bind(config, Arc::clone(&behind)).await.expect("the server binds");
        let address = server.address();
        let (stop, stopped) = oneshot::channel();
        tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self { address, key, behind, _folder: folder, _stop: stop }
    }

    /// The backend by way of this address.
    pub(crate) fn provider(&self, address: &str) -> E2bProvider {
        let config =
            E2bConfig::new().with_api_key(&*self.key).with_api_url(address).with_sandbox_url(address);
        E2bProvider::open(config).expect("the backend opens")
    }

    /// The same with nothing between.
    pub(crate) fn direct(&self) -> E2bProvider {
        self.provider(&format!("http://{}", self.address))
    }
}

fn config(folder: &Path) -> ServerConfig {
    ServerConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        domain: Some("sandboxes.test".to_owned()),
        tls: None,
        data: folder.join("data"),
        default_egress: DefaultEgress::None,
        limits: Limits { sandboxes: 1_000, requests_per_second: 10_000, burst: 10_000, ..Limits::default() },
        public_url: None,
        metrics_listen: None,
        code_interpreter: CodeInterpreter::Off,
        head_limit: sandbar_server::DEFAULT_HEAD_LIMIT,
    }
}

/// All that an error says, to a person, a log and a debugger.
pub(crate) fn words(error: &Error) -> String {
    let mut words = format!("{error} {error:?} {:?}", error.hint());
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(words, " {cause} {cause:?}");
        source = cause.source();
    }
    words
}
