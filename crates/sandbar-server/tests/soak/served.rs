//! The server as a process.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use sandbar::{ProviderExt as _, Query, SandboxProvider};
use sandbar_server::KeyStore;

use crate::api::Api;
use crate::look;

/// Descriptors that the server and this process may have: it keeps three for each connection, and half of its places for one address.
const DESCRIPTORS: u64 = 32_768;

/// A server, its sandboxes and its store, all of which end with it.
pub(crate) struct Served {
    pub(crate) api: Api,
    child: Child,
    folder: tempfile::TempDir,
}

impl Served {
    /// One over local sandboxes that reach nothing.
    pub(crate) async fn start() -> Self {
        raise_descriptors();
        let folder = tempfile::Builder::new().prefix("sandbar-soak-").tempdir().expect("a folder");
        let keys = KeyStore::open(&folder.path().join("data")).expect("the store opens");
        let key = keys.create("soak", None).await.expect("a key").text;
        drop(keys);
        let (child, address) = serve(folder.path(), ([127, 0, 0, 1], 0).into()).expect("the server starts");
        Self { api: Api { address, key }, child, folder }
    }

    /// Ends it as nobody should.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Starts it again where it was: as soon as the port is free, which somebody else's connection may have for a moment.
    pub(crate) async fn start_again(&mut self) {
        let (folder, address) = (self.folder.path().to_owned(), self.api.address);
        let started = async || match serve(&folder, address) {
            Some((child, _)) => {
                self.child = child;
                true
            }
            None => false,
        };
        look::eventually("the server starts again", started).await;
    }

    /// Asks it to end, and waits for that.
    pub(crate) async fn stop(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it is there");
        let ended = async || self.child.try_wait().expect("a look").is_some();
        look::eventually("the server ends", ended).await;
        assert!(self.child.wait().expect("its end").success(), "{}", self.log());
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// The sandboxes, as everybody sees them who has the data folder.
    pub(crate) fn provider(&self) -> Arc<dyn SandboxProvider> {
        sandbar::connect(&format!("local:{}", self.home().display())).expect("the local backend opens")
    }

    /// Asserts that nothing is left of any sandbox: no record, process or mount. The server is stopped: what it kept in advance is of it.
    pub(crate) async fn assert_nothing_left(&self) {
        let listed = self.provider().list_all(Query::new()).await.expect("a listing");
        assert!(listed.is_empty(), "still listed: {listed:?}");
        let none = async || look::traces(self.folder.path()).is_empty();
        look::eventually(&format!("nothing is left in {}", self.folder.path().display()), none).await;
    }

    /// The end of what it logged.
    pub(crate) fn log(&self) -> String {
        let text = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("the server's log ends:\n{}", self.log());
        }
        let home = self.home().display().to_string();
        let helper = std::env::var_os("SANDBAR_HELPER").unwrap_or_default();
        let sandbar = |args: &[&str]| {
            Command::new(&helper).args(["--provider", &format!("local:{home}")]).args(args).output()
        };
        let listed = sandbar(&["ls", "--json"]).map(|output| output.stdout).unwrap_or_default();
        let records: Vec<serde_json::Value> = serde_json::from_slice(&listed).unwrap_or_default();
        for id in records.iter().filter_map(|record| record["id"].as_str()) {
            let _ = sandbar(&["destroy", id]);
        }
    }
}

/// Starts it, and answers where it is; `None` if it ended instead.
fn serve(folder: &Path, address: SocketAddr) -> Option<(Child, SocketAddr)> {
    let helper = std::env::var_os("SANDBAR_HELPER").expect("SANDBAR_HELPER names the executable");
    let log = std::fs::File::options().create(true).append(true).open(folder.join("log")).expect("a log");
    let mut child = Command::new(helper)
        .args(["--provider", &format!("local:{}", folder.join("home").display())])
        .args(["serve", "--listen", &address.to_string(), "--default-egress", "none"])
        .args(["--code-interpreter", "off", "--data"])
        .arg(folder.join("data"))
        // A line for each request would be most of what it does here.
        .env("RUST_LOG", "warn")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .expect("the server starts");
    let stdout = child.stdout.take().expect("its output");
    let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
    let origin =
        lines.find_map(|line| line.strip_prefix("export E2B_SANDBOX_URL=http://").map(str::to_owned));
    let Some(address) = origin.and_then(|origin| origin.parse().ok()) else {
        let _ = child.kill();
        let _ = child.wait();
        return None;
    };
    // Reads on, so that the server never writes to nobody.
    std::thread::spawn(move || lines.for_each(drop));
    Some((child, address))
}

/// Raises what this process and its children may have open, as far as it may.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let is_root = rustix::process::geteuid().is_root();
    let maximum = limit.maximum.map(|most| if is_root { most.max(DESCRIPTORS) } else { most });
    let wanted = maximum.unwrap_or(DESCRIPTORS).min(DESCRIPTORS);
    if limit.current.is_some_and(|current| current < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}

/// How often is looked for a condition.
pub(crate) const LOOK: Duration = Duration::from_millis(20);
