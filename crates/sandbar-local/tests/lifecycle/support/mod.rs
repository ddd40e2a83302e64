//! What the tests of this backend have in common: a data folder of their own, and looks at what is left of sandboxes.

pub(crate) mod fake;
mod look;
mod store;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sandbar_core::{CreateOptions, ProviderExt, Query, Sandbox, SandboxId, SandboxProvider};
use sandbar_local::{LocalConfig, LocalProvider, Spare};

pub(crate) use store::{FileSystem, Store, run, unmount};

pub(crate) use look::{Traces, agent_pid, descendants, has_ended, has_root_inside, is_alive, kill, shim_pid};

/// A data folder for one test.
pub(crate) struct Bed {
    scratch: tempfile::TempDir,
}

impl Bed {
    /// Makes one; `None`, with the reason printed, where no sandbox can be made at all.
    pub(crate) fn new() -> Option<Self> {
        Self::below(&std::env::temp_dir())
    }

    /// The same below a folder.
    pub(crate) fn below(folder: &Path) -> Option<Self> {
        if let Ok(text) = std::fs::read_to_string("/proc/sys/user/max_user_namespaces")
            && text.trim() == "0"
        {
            println!("skipped: user namespaces are switched off on this machine");
            return None;
        }
        Some(Self {
            scratch: tempfile::Builder::new()
                .prefix("sandbar-test-")
                .tempdir_in(folder)
                .expect("a temporary folder"),
        })
    }

    /// The data folder.
    pub(crate) fn home(&self) -> PathBuf {
        self.scratch.path().join("home")
    }

    /// A folder for other things.
    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// How to open it.
    pub(crate) fn config(&self) -> LocalConfig {
        LocalConfig::new().with_home(self.home()).with_spare(Spare::None)
    }

    /// A new provider on it, as another process would have.
    pub(crate) fn provider(&self) -> LocalProvider {
        LocalProvider::open(self.config()).expect("the provider opens")
    }

    /// A record as it stands on disk.
    pub(crate) fn stored(&self, id: &SandboxId) -> serde_json::Value {
        let text = std::fs::read(self.folder(id).join("record.json")).expect("a record");
        serde_json::from_slice(&text).expect("a record in JSON")
    }

    /// The folder of a sandbox.
    pub(crate) fn folder(&self, id: &SandboxId) -> PathBuf {
        self.home().join("sandboxes").join(id.as_str())
    }

    /// Asserts that nothing is left of any sandbox of this folder: no file, process, mount or control group.
    pub(crate) async fn assert_empty(&self, when: &str) {
        let listed = self.provider().list_all(Query::new()).await.expect("a listing");
        assert!(listed.is_empty(), "{when}: still listed: {listed:?}");
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            let traces = Traces::of(&self.home());
            if traces.is_empty() {
                return;
            }
            assert!(Instant::now() < end, "{when}: left behind: {traces:#?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Bed {
    /// A test that failed leaves no process of its sandboxes either.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for entry in
            std::fs::read_dir(self.home().join("sandboxes")).into_iter().flatten().filter_map(Result::ok)
        {
            let Ok(id) = SandboxId::new(entry.file_name().to_string_lossy()) else { continue };
            shim_pid(self, &id).into_iter().for_each(kill);
            let text = std::fs::read(entry.path().join("record.json")).unwrap_or_default();
            let record = serde_json::from_slice::<serde_json::Value>(&text).unwrap_or_default();
            let agent = record["private"]["agent"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
            agent.into_iter().for_each(kill);
        }
    }
}

/// Waits until `condition` holds, at most ten seconds.
pub(crate) async fn eventually(what: &str, condition: impl AsyncFnMut() -> bool) {
    eventually_within(Duration::from_secs(10), what, condition).await;
}

/// As [`eventually`], with another bound.
pub(crate) async fn eventually_within(bound: Duration, what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + bound;
    while !condition().await {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Kills the shim of a sandbox, and waits until what it held is free. Another may be there already by then.
pub(crate) async fn end_shim(bed: &Bed, id: &SandboxId) {
    let shim = shim_pid(bed, id).expect("a shim");
    kill(shim);
    eventually("the shim is gone", async || has_ended(shim)).await;
}

/// A sandbox with defaults.
pub(crate) async fn create(provider: &LocalProvider) -> std::sync::Arc<dyn Sandbox> {
    provider.create(CreateOptions::new()).await.expect("a sandbox")
}

/// The size of a long check: `$SANDBAR_SOAK`, or `quick`.
pub(crate) fn size(quick: u32) -> u32 {
    std::env::var("SANDBAR_SOAK").ok().and_then(|size| size.parse().ok()).unwrap_or(quick)
}
