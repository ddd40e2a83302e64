use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use sandbar::{CreateOptions, Lifetime, Sandbox, SandboxProvider};
use tokio::runtime::Runtime;

/// What measurements have in common: a data folder of their own, the executable, a runtime of one thread as the command line has it.
pub(crate) struct Bed {
    pub(crate) runtime: Runtime,
    pub(crate) provider: Arc<dyn SandboxProvider>,
    pub(crate) executable: PathBuf,
    pub(crate) quick: bool,
    folder: tempfile::TempDir,
}

impl Bed {
    pub(crate) fn new(quick: bool) -> Result<Self, String> {
        let text = |why: &dyn std::fmt::Display| why.to_string();
        let executable = std::env::var_os("SANDBAR_HELPER")
            .map(PathBuf::from)
            .ok_or("SANDBAR_HELPER is not set: it names the `sandbar` executable to measure")?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|why| text(&why))?;
        let folder = tempfile::Builder::new().prefix("sb-").tempdir().map_err(|why| text(&why))?;
        let provider = connect(&runtime, &folder.path().join("home"))?;
        Ok(Self { runtime, provider, executable, quick, folder })
    }

    /// How often something is measured.
    pub(crate) fn rounds(&self, whole: usize) -> usize {
        if self.quick { (whole / 10).max(3) } else { whole }
    }

    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// The data folder.
    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// A sandbox that ends with this process.
    pub(crate) async fn create(&self) -> Result<Arc<dyn Sandbox>, String> {
        create(&self.provider).await
    }

    /// The command line, over the same data folder.
    pub(crate) fn command_line(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.env("SANDBAR_HOME", self.home());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }
}

/// A provider over a data folder.
pub(crate) fn connect(runtime: &Runtime, home: &std::path::Path) -> Result<Arc<dyn SandboxProvider>, String> {
    let _inside = runtime.enter();
    sandbar::connect(&format!("local:{}", home.display())).map_err(|why| why.to_string())
}

/// A sandbox that ends with this process.
pub(crate) async fn create(provider: &Arc<dyn SandboxProvider>) -> Result<Arc<dyn Sandbox>, String> {
    let options = CreateOptions::new().with_lifetime(Lifetime::Owned);
    provider.create(options).await.map_err(|error| error.to_string())
}

/// Runs a host command to its successful end.
pub(crate) fn finish(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|why| format!("{}: {why}", command.get_program().display()))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", command.get_program().display())) }
}
