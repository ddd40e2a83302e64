use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbar_core::{
    CreateOptions, EgressPolicy, ProviderExt, Query, Sandbox, SandboxExt, SandboxId, SandboxProvider,
    SandboxRecord,
};
use sandbar_local::{LocalConfig, LocalProvider, Spare};
use sandbar_rig::{Rig, inside};

/// How long what has to come about may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A data folder and an outside.
pub(crate) struct Scene {
    pub(crate) rig: Rig,
    scratch: tempfile::TempDir,
}

/// Runs `body` in a rig; `name` is the test's whole one. Nothing is left of its sandboxes afterwards.
#[track_caller]
pub(crate) fn scene(name: &str, body: impl AsyncFnOnce(&Scene)) {
    inside(name, || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let scratch = tempfile::Builder::new().prefix("sandbar-test-").tempdir().expect("a folder");
        let scene = Scene { rig: Rig::connect(), scratch };
        runtime.block_on(async {
            body(&scene).await;
            let provider = scene.provider();
            let left = provider.list_all(Query::new()).await.expect("a listing");
            for record in left {
                provider.destroy(&record.id).await.expect("destroyed");
            }
        });
    });
}

impl Scene {
    /// The data folder.
    pub(crate) fn home(&self) -> PathBuf {
        self.scratch.path().join("home")
    }

    /// A folder for other things.
    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    pub(crate) fn config(&self) -> LocalConfig {
        LocalConfig::new().with_home(self.home()).with_spare(Spare::None)
    }

    /// A new provider, as another process would have.
    pub(crate) fn provider(&self) -> LocalProvider {
        LocalProvider::open(self.config()).expect("the provider opens")
    }

    /// One that keeps a prepared sandbox.
    pub(crate) fn keeping(&self) -> LocalProvider {
        LocalProvider::open(self.config().with_spare(Spare::Kept)).expect("the provider opens")
    }

    /// A sandbox under a policy.
    pub(crate) async fn create(&self, policy: EgressPolicy) -> Arc<dyn Sandbox> {
        self.provider().create(CreateOptions::new().with_egress(policy)).await.expect("a sandbox")
    }

    /// A sandbox under rules that allow.
    pub(crate) async fn allowing(&self, rules: &[&str]) -> Arc<dyn Sandbox> {
        self.create(rules_of(rules)).await
    }

    /// Changes what a sandbox may reach.
    pub(crate) async fn allow(&self, sandbox: &dyn Sandbox, rules: &[&str]) {
        sandbox.require_network().expect("a network").set_policy(rules_of(rules)).await.expect("set");
    }

    /// The policy that another process is told.
    pub(crate) async fn provider_sees(&self, sandbox: &dyn Sandbox) -> Option<EgressPolicy> {
        self.described(sandbox).await.egress.policy
    }

    /// What another process is told of a sandbox.
    pub(crate) async fn described(&self, sandbox: &dyn Sandbox) -> SandboxRecord {
        self.provider().describe(sandbox.id()).await.expect("a look").expect("a record")
    }

    /// The folder of a sandbox.
    pub(crate) fn folder(&self, id: &SandboxId) -> PathBuf {
        self.home().join("sandboxes").join(id.as_str())
    }
}

impl Drop for Scene {
    /// A test that failed leaves no process either: in a rig of its own all ends with it, in a shared one not.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for entry in fs::read_dir(self.home().join("sandboxes")).into_iter().flatten().flatten() {
            let Ok(id) = SandboxId::new(entry.file_name().to_string_lossy()) else { continue };
            let log = fs::read_to_string(entry.path().join("shim.log")).unwrap_or_default();
            if !log.is_empty() {
                println!("shim of `{id}`: {log}");
            }
            shim_pid(self, &id).into_iter().for_each(kill);
            let text = fs::read(entry.path().join("record.json")).unwrap_or_default();
            let record = serde_json::from_slice::<serde_json::Value>(&text).unwrap_or_default();
            let agent = record["private"]["agent"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
            agent.into_iter().for_each(kill);
        }
    }
}

pub(crate) fn rules_of(rules: &[&str]) -> EgressPolicy {
    EgressPolicy::allow(rules.iter().copied()).expect("rules")
}

/// The shim of a sandbox: the process that holds its lock open.
pub(crate) fn shim_pid(scene: &Scene, id: &SandboxId) -> Option<i32> {
    let lock = scene.folder(id).join("lock");
    let own = i32::try_from(std::process::id()).ok();
    let pids = entries(Path::new("/proc"));
    let pids = pids.iter().filter_map(|path| path.file_name()?.to_str()?.parse().ok());
    pids.filter(|pid| Some(*pid) != own && is_alive(*pid)).find(|pid| {
        let open = entries(Path::new(&format!("/proc/{pid}/fd")));
        open.iter().any(|fd| fs::read_link(fd).is_ok_and(|to| to == lock))
    })
}

/// Kills the shim of a sandbox, and waits until what it held is free. Another may be there already by then.
pub(crate) async fn end_shim(scene: &Scene, id: &SandboxId) {
    let Some(pid) = shim_pid(scene, id) else { return };
    kill(pid);
    eventually("the shim is gone", async || {
        !is_alive(pid) && entries(Path::new(&format!("/proc/{pid}/task"))).len() <= 1
    })
    .await;
}

/// Waits until `condition` holds.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The executable, as the provider looks for it.
pub(crate) fn helper() -> PathBuf {
    if let Some(named) = std::env::var_os("SANDBAR_HELPER") {
        return named.into();
    }
    let current = std::env::current_exe().expect("this program");
    let helper = current.ancestors().nth(2).expect("the target folder").join("sandbar");
    assert!(helper.exists(), "`{}` is not there: run `cargo build -p sandbar-cli` first", helper.display());
    helper
}

/// The size of a long check: `$SANDBAR_SOAK`, or `quick`.
pub(crate) fn size(quick: usize) -> usize {
    std::env::var("SANDBAR_SOAK").ok().and_then(|size| size.parse().ok()).unwrap_or(quick)
}

fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}

fn kill(pid: i32) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
