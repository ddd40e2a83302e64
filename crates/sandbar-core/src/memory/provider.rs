use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::create::create;
use super::fault::Fault;
use super::program::{Program, Registry};
use super::sandbox::MemorySandbox;
use super::store::{MemoryTemplates, MemoryVolumes};
use super::world::{BACKEND, World};
use crate::{
    CreateOptions, Error, ErrorKind, GetOptions, Query, Result, Retry, Sandbox, SandboxId, SandboxProvider,
    SandboxRecord, Templates, UsageHistory, Volumes, Wake,
};

/// The reference backend: sandboxes in memory, for tests and for documentation.
///
/// Nothing runs for real. Programs are emulated: a subset of the POSIX shell (`sh`), a set of small tools (`cat`, `echo`, `env`, `head`,
/// `kill`, `ls`, `printf`, `sleep`, `wc` and their kind) and those that [`MemoryBuilder::with_program`] registers. Any other is not found.
/// There is no wall round them, which is [`Isolation::Emulated`](crate::Isolation::Emulated), and no check of file permissions except
/// the execute bit. Users are `user` (the default) and `root`.
///
/// Sandboxes live as long as the provider or one of their handles does. Their programs run as tasks of the tokio runtime on which they
/// were started; without one, [`create`](SandboxProvider::create) fails.
///
/// ```
/// use sandbar_core::{Command, CreateOptions, MemoryProvider, SandboxProvider};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> sandbar_core::Result<()> {
/// let provider = MemoryProvider::new();
/// let sandbox = provider.create(CreateOptions::new()).await?;
/// let output = sandbox.commands().run(&Command::shell("echo out; echo err >&2; exit 3")).await?;
/// assert_eq!(output.status.to_code(), 3);
/// assert_eq!(output.stdout_lossy(), "out\n");
/// assert!(provider.destroy(sandbox.id()).await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryProvider {
    pub(super) world: Arc<World>,
    templates: MemoryTemplates,
    volumes: MemoryVolumes,
}

/// Puts a [`MemoryProvider`] together.
#[derive(Clone, Debug, Default)]
pub struct MemoryBuilder {
    programs: Registry,
}

impl MemoryBuilder {
    /// Registers a program. It replaces a built-in one of the same name.
    pub fn with_program(mut self, name: impl Into<String>, program: Arc<dyn Program>) -> Self {
        self.programs.add(name.into(), program);
        self
    }

    /// The provider.
    pub fn build(self) -> MemoryProvider {
        let world = Arc::new(World::new(self.programs));
        MemoryProvider {
            templates: MemoryTemplates { world: world.clone() },
            volumes: MemoryVolumes { world: world.clone() },
            world,
        }
    }
}

impl MemoryProvider {
    /// A provider with the built-in programs and no sandboxes.
    pub fn new() -> Self {
        MemoryBuilder::default().build()
    }

    /// For a provider with programs of your own.
    pub fn builder() -> MemoryBuilder {
        MemoryBuilder::default()
    }

    /// Makes the next operation of a kind fail once.
    pub fn fail_next(&self, fault: Fault) {
        self.world.faults.arm(fault);
    }

    /// As [`MemoryProvider::fail_next`] with [`Fault::Lookup`].
    pub fn fail_next_lookup(&self) {
        self.fail_next(Fault::Lookup);
    }
}

impl Default for MemoryProvider {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryProvider")
            .field("sandboxes", &self.world.lock().machines.len())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl SandboxProvider for MemoryProvider {
    fn name(&self) -> &'static str {
        BACKEND
    }

    async fn create(&self, options: CreateOptions) -> Result<Arc<dyn Sandbox>> {
        let machine = create(&self.world, options)?;
        Ok(Arc::new(MemorySandbox::new(self.world.clone(), machine.id.clone())))
    }

    async fn get_opts(&self, id: &SandboxId, options: GetOptions) -> Result<Option<Arc<dyn Sandbox>>> {
        self.world.faults.check(Fault::Lookup, "get", &format!("sandbox `{id}`"))?;
        let Some(machine) = self.world.machine(id) else { return Ok(None) };
        if options.wake == Wake::Yes {
            machine.wake();
        }
        Ok(Some(Arc::new(MemorySandbox::new(self.world.clone(), id.clone()))))
    }

    async fn describe(&self, id: &SandboxId) -> Result<Option<SandboxRecord>> {
        self.world.faults.check(Fault::Lookup, "describe", &format!("sandbox `{id}`"))?;
        Ok(self.world.machine(id).map(|machine| machine.record()))
    }

    async fn list(&self, query: Query) -> Result<BoxStream<'static, Result<SandboxRecord>>> {
        let broken = self.world.faults.take(Fault::Listing);
        let mut records: Vec<Result<SandboxRecord>> =
            self.world.records().into_iter().filter(|record| query.matches(record)).map(Ok).collect();
        if broken {
            records.truncate(1);
            records.push(Err(Error::new(
                ErrorKind::Unavailable,
                "list",
                "the listing broke off; which sandboxes exist is unknown",
            )
            .with_backend(BACKEND)
            .with_retry(Retry::Safe)));
        }
        Ok(stream::iter(records).boxed())
    }

    async fn destroy(&self, id: &SandboxId) -> Result<bool> {
        self.world.faults.check(Fault::Destroy, "destroy", &format!("sandbox `{id}`"))?;
        Ok(self.world.machine(id).is_some() && self.world.destroy(id))
    }

    fn templates(&self) -> Option<&dyn Templates> {
        Some(&self.templates)
    }

    fn volumes(&self) -> Option<&dyn Volumes> {
        Some(&self.volumes)
    }

    fn usage(&self) -> Option<&dyn UsageHistory> {
        Some(self)
    }

    fn missing_reason(&self, part: &str) -> Option<String> {
        let reason = match part {
            "builds" => "the reference backend captures templates from sandboxes only",
            "egress" => "emulated programs have no network to observe",
            "capacity" => "emulated sandboxes take next to nothing, so there is no room to measure",
            _ => return None,
        };
        Some(reason.to_owned())
    }
}
