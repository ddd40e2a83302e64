use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use sandbar::{ProviderExt, Query, SandboxProvider};
use sandbar_e2b::{E2bConfig, E2bProvider};
use sandbar_server::{
    CodeInterpreter, DEFAULT_HEAD_LIMIT, DefaultEgress, KeyStore, Limits, Server, ServerConfig,
};
use tokio::sync::oneshot;

/// A server over the local backend in a folder of its own.
pub(crate) struct Rig {
    pub(crate) address: String,
    pub(crate) key: String,
    /// The backend behind the server, for looks that do not go by it.
    pub(crate) behind: Arc<dyn SandboxProvider>,
    folder: tempfile::TempDir,
    _stop: oneshot::Sender<()>,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("local:{}", folder.path().join("home").display());
        let behind = sandbar::connect(&url).expect("the local backend opens");
        let config = config(folder.path());
        let key = KeyStore::open(&config.data).expect("the store opens").create("test", None).await;
        let key = key.expect("a key").text;
        let server = Server::bind(config, Arc::clone(&behind)).await.expect("the server binds");
        let address = format!("http://{}", server.address());
        let (stop, stopped) = oneshot::channel();
        tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self { address, key, behind, folder, _stop: stop }
    }

    pub(crate) fn config(&self) -> E2bConfig {
        self.config_at(&self.address)
    }

    /// By way of another address.
    pub(crate) fn config_at(&self, address: &str) -> E2bConfig {
        E2bConfig::new().with_api_key(&*self.key).with_api_url(address).with_sandbox_url(address)
    }

    pub(crate) fn provider(&self) -> E2bProvider {
        E2bProvider::open(self.config()).expect("the backend opens")
    }

    /// Nothing is left behind the server.
    pub(crate) async fn assert_empty(&self) {
        let left = self.behind.list_all(Query::new()).await.expect("a listing");
        assert!(left.is_empty(), "left: {left:?}");
    }
}

impl Drop for Rig {
    /// Nothing is left, however the test ended.
    fn drop(&mut self) {
        let home = self.folder.path().join("home");
        let Some(helper) = std::env::var_os("SANDBAR_HELPER").filter(|_| home.exists()) else { return };
        let url = format!("local:{}", home.display());
        let sandbar = |args: &[&str]| Command::new(&helper).args(["--provider", &url]).args(args).output();
        let listed = sandbar(&["ls", "--json"]).map(|output| output.stdout).unwrap_or_default();
        let records: Vec<serde_json::Value> = serde_json::from_slice(&listed).unwrap_or_default();
        for id in records.iter().filter_map(|record| record["id"].as_str()) {
            let _ = sandbar(&["destroy", id]);
        }
    }
}

/// Settings of a test: nothing that needs the world outside.
fn config(folder: &Path) -> ServerConfig {
    ServerConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        domain: Some("sandboxes.test".to_owned()),
        tls: None,
        data: folder.join("data"),
        default_egress: DefaultEgress::None,
        limits: Limits::default(),
        public_url: None,
        metrics_listen: None,
        code_interpreter: CodeInterpreter::Off,
        head_limit: DEFAULT_HEAD_LIMIT,
    }
}
