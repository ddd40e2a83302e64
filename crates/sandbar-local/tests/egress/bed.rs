//! What these tests have in common: a data folder and a runtime of their own, in a rig.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbar_core::{
    Command, CreateOptions, EgressPolicy, Output, RunOptions, Sandbox, SandboxId, SandboxProvider, UserName,
};
use sandbar_local::{LocalConfig, LocalProvider, Spare};

/// How long a command in a sandbox may take.
const COMMAND: Duration = Duration::from_secs(120);

/// A data folder for one test.
pub(crate) struct Bed {
    scratch: tempfile::TempDir,
    pub(crate) provider: LocalProvider,
}

impl Bed {
    pub(crate) fn new() -> Self {
        let scratch = tempfile::Builder::new().prefix("sandbar-test-").tempdir().expect("a temporary folder");
        let config = LocalConfig::new().with_home(scratch.path().join("home")).with_spare(Spare::None);
        let provider = LocalProvider::open(config).expect("the provider opens");
        Self { scratch, provider }
    }

    /// A sandbox under a policy.
    pub(crate) async fn sandbox(&self, policy: EgressPolicy) -> Inside {
        self.sandbox_with(CreateOptions::new().with_egress(policy)).await
    }

    /// A sandbox.
    pub(crate) async fn sandbox_with(&self, options: CreateOptions) -> Inside {
        Inside(self.provider.create(options).await.expect("a sandbox"))
    }

    /// The folder of a sandbox.
    pub(crate) fn folder(&self, id: &SandboxId) -> PathBuf {
        self.scratch.path().join("home/sandboxes").join(id.as_str())
    }

    /// Asserts that no sandbox is left.
    pub(crate) fn assert_empty(&self) {
        let left = std::fs::read_dir(self.scratch.path().join("home/sandboxes"))
            .map(|entries| entries.filter_map(Result::ok).map(|entry| entry.file_name()).collect::<Vec<_>>())
            .unwrap_or_default();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

/// A sandbox, and programs in it.
#[derive(Clone)]
pub(crate) struct Inside(pub(crate) Arc<dyn Sandbox>);

impl Inside {
    /// Runs a command as a user (the ordinary one without).
    pub(crate) async fn run_as(&self, user: Option<&str>, command: &Command, input: Vec<u8>) -> Output {
        let mut options = RunOptions::default().with_timeout(COMMAND).with_stdin(input);
        options.user = user.map(|user| UserName::new(user).unwrap());
        self.0.commands().run_opts(command, options).await.expect("the command runs")
    }

    /// Runs a shell's script as the ordinary user.
    pub(crate) async fn sh(&self, script: &str) -> Output {
        self.run_as(None, &Command::shell(script), Vec::new()).await
    }

    /// Fetches a page; the exit code of `curl`, and what it printed.
    pub(crate) async fn curl(&self, url: &str) -> (i32, String) {
        let output = self.sh(&format!("curl -sSk --max-time 20 '{url}' 2>&1")).await;
        (output.status.to_code(), output.stdout_lossy().into_owned())
    }

    /// Asserts that a page is had.
    #[track_caller]
    pub(crate) fn fetched(&self, url: &str) -> impl Future<Output = String> {
        let (own, url) = (self.clone(), url.to_owned());
        async move {
            let (code, text) = own.curl(&url).await;
            assert_eq!(code, 0, "{url}: {text}");
            text
        }
    }

    /// Asserts that a page is not had, and that this is clear within a second.
    pub(crate) async fn refused(&self, url: &str) -> String {
        let begun = Instant::now();
        let output = self.sh(&format!("curl -sSkf --max-time 20 '{url}' 2>&1")).await;
        let text = output.stdout_lossy().into_owned();
        assert!(!output.status.is_success(), "{url}: {text}");
        // A second for the refusal, and what a loaded machine takes for a command.
        assert!(begun.elapsed() < Duration::from_secs(3), "{url}: {:?}", begun.elapsed());
        text
    }

    pub(crate) async fn destroy(self) {
        self.0.destroy().await.expect("the sandbox goes");
    }
}

/// As whom a program inside is run: the ordinary user, and root where there is one.
pub(crate) fn users() -> Vec<Option<&'static str>> {
    let host = sandbar_engine::Host::observe();
    if host.needs_range() || host.user_id_mode().has_root() { vec![None, Some("root")] } else { vec![None] }
}

/// A policy of rules.
pub(crate) fn allow<'a>(rules: impl IntoIterator<Item = &'a str>) -> EgressPolicy {
    EgressPolicy::allow(rules).expect("rules")
}

/// Runs a test in a rig.
#[track_caller]
pub(crate) fn in_rig<F: Future<Output = ()>>(name: &str, body: impl FnOnce() -> F) {
    sandbar_rig::inside(name, || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(body());
    });
}

/// Waits until `look` finds something, at most twenty seconds.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The size of a long check: `$SANDBAR_SOAK`, or `quick`.
pub(crate) fn size(quick: usize) -> usize {
    std::env::var("SANDBAR_SOAK").ok().and_then(|size| size.parse().ok()).unwrap_or(quick)
}
