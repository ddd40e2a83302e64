use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use sandbar_core::{
    Builds, CapacityReport, CreateOptions, EgressCheck, GetOptions, MainCommand, Query, Result, Sandbox,
    SandboxId, SandboxProvider, SandboxRecord, Templates, UsageHistory, Volumes, Wake,
};
use serde_json::{Map, Value, json};

use super::commands::started;
use super::observation::pass_on;
use super::{Observation, ObservedSandbox, Operation, Target};
use crate::event::details;

/// A provider over another, that tells what is done as its [`Observation`] says, and else does what the other does.
///
/// Told are operations that have an effect on a sandbox or show what is in it. Looking at records, listings, measures and capacities is not.
#[derive(Clone, Debug)]
pub struct Observed {
    pub(super) inner: Arc<dyn SandboxProvider>,
    pub(super) observation: Arc<Observation>,
}

impl Observed {
    /// Over `provider`.
    pub fn new(provider: impl SandboxProvider + 'static, observation: Observation) -> Self {
        Self::over(Arc::new(provider), observation)
    }

    /// Over a shared `provider`.
    pub fn over(provider: Arc<dyn SandboxProvider>, observation: Observation) -> Self {
        Self { inner: provider, observation: Arc::new(observation) }
    }

    pub(super) async fn begin(
        &self,
        op: &'static str,
        detail: impl FnOnce(&mut Map<String, Value>),
    ) -> Result<Operation> {
        Operation::begin(&self.observation, self.inner.name(), op, &Target::default(), detail).await
    }

    /// A handle that tells; of which project the sandbox is, is looked up where it is told.
    async fn wrap(&self, sandbox: Arc<dyn Sandbox>) -> Arc<dyn Sandbox> {
        let project = match &self.observation.audit {
            // Where that can't be seen it is not known; what comes next will say why.
            Some(_) => sandbox.record().await.ok().and_then(|record| record.project),
            None => None,
        };
        let target = Target { sandbox: Some(sandbox.id().clone()), project };
        Arc::new(self.handle(sandbox, target))
    }

    /// What is told of a main command: as of any other, and what is done when it ends.
    fn main(&self, main: &MainCommand) -> Value {
        let MainCommand { command, restart, cwd, env, user } = main;
        let mut detail = Map::new();
        self.observation.command(command, &mut detail);
        started(cwd.as_ref(), user.as_ref(), env, &mut detail);
        detail.insert("restart".into(), json!(restart));
        detail.into()
    }

    pub(super) fn handle(&self, sandbox: Arc<dyn Sandbox>, target: Target) -> ObservedSandbox {
        ObservedSandbox::new(sandbox, Arc::clone(&self.observation), self.inner.name(), target)
    }
}

#[async_trait]
impl SandboxProvider for Observed {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    async fn create(&self, mut options: CreateOptions) -> Result<Arc<dyn Sandbox>> {
        let project = options.project.clone();
        let mut operation = self
            .begin("create", |detail| {
                describe(&options, detail);
                if let Some(main) = &options.main {
                    detail.insert("main".into(), self.main(main));
                }
            })
            .await?;
        if let Some(main) = &mut options.main {
            pass_on(operation.span(), &mut main.env);
        }
        let created = operation.cause(self.inner.create(options)).await;
        let Ok(sandbox) = created else { return operation.end(created).await };
        operation.set_sandbox(sandbox.id(), project.as_ref());
        if let Err(unrecorded) = operation.end(Ok(())).await {
            // Nobody would know of it.
            let left = sandbox.destroy().await;
            return Err(match left {
                Ok(_) => unrecorded,
                Err(_) => unrecorded.with_left_behind(format!("sandbox `{}`", sandbox.id())),
            });
        }
        let target = Target { sandbox: Some(sandbox.id().clone()), project };
        Ok(Arc::new(self.handle(sandbox, target)))
    }

    async fn get_opts(&self, id: &SandboxId, options: GetOptions) -> Result<Option<Arc<dyn Sandbox>>> {
        let found = if options.wake == Wake::Yes {
            let target = Target { sandbox: Some(id.clone()), project: None };
            let operation =
                Operation::begin(&self.observation, self.inner.name(), "wake", &target, |_| {}).await?;
            let found = operation.cause(self.inner.get_opts(id, options)).await;
            operation.end(found).await?
        } else {
            self.inner.get_opts(id, options).await?
        };
        Ok(match found {
            Some(sandbox) => Some(self.wrap(sandbox).await),
            None => None,
        })
    }

    async fn describe(&self, id: &SandboxId) -> Result<Option<SandboxRecord>> {
        self.inner.describe(id).await
    }

    async fn list(&self, query: Query) -> Result<BoxStream<'static, Result<SandboxRecord>>> {
        self.inner.list(query).await
    }

    async fn destroy(&self, id: &SandboxId) -> Result<bool> {
        let project = match &self.observation.audit {
            Some(_) => self.inner.describe(id).await.ok().flatten().and_then(|record| record.project),
            None => None,
        };
        let target = Target { sandbox: Some(id.clone()), project };
        let mut operation =
            Operation::begin_end(&self.observation, self.inner.name(), "destroy", &target).await;
        let destroyed = operation.cause(self.inner.destroy(id)).await;
        if let Ok(existed) = destroyed {
            operation.detail("existed", existed);
        }
        operation.end_regardless(destroyed).await
    }

    fn templates(&self) -> Option<&dyn Templates> {
        self.inner.templates().map(|_| self as &dyn Templates)
    }

    fn builds(&self) -> Option<&dyn Builds> {
        self.inner.builds().map(|_| self as &dyn Builds)
    }

    fn volumes(&self) -> Option<&dyn Volumes> {
        self.inner.volumes().map(|_| self as &dyn Volumes)
    }

    fn egress(&self) -> Option<&dyn EgressCheck> {
        self.inner.egress().map(|_| self as &dyn EgressCheck)
    }

    fn capacity(&self) -> Option<&dyn CapacityReport> {
        // Measuring changes nothing and shows nothing of a sandbox.
        self.inner.capacity()
    }

    fn usage(&self) -> Option<&dyn UsageHistory> {
        // As with records.
        self.inner.usage()
    }

    fn missing_reason(&self, part: &str) -> Option<String> {
        self.inner.missing_reason(part)
    }
}

/// What is told of a creation. Taken apart in full, so that a new option does not compile until it is decided whether it is told.
fn describe(options: &CreateOptions, detail: &mut Map<String, Value>) {
    let CreateOptions {
        // Told of every event.
        project: _,
        name,
        base,
        env,
        // Not even its names: it is none of anybody's business.
        self_delivered_env: _,
        // They may be anything, and the sandbox' record has them.
        labels: _,
        // Told as commands are, by whoever knows what is told of those.
        main: _,
        ports,
        volumes,
        host_mounts,
        resources,
        limit_demand: _,
        egress,
        deadline,
        on_deadline,
        min_isolation,
        lifetime,
    } = options;
    let mut tell = |key: &str, value: Value| {
        if !value.is_null() {
            detail.insert(key.to_owned(), value);
        }
    };
    tell("name", name.as_ref().map(|name| details::word(name.as_str())).into());
    tell(
        "base",
        match base {
            sandbar_core::Base::Default => Value::Null,
            sandbar_core::Base::Template(template) => details::word(template.as_str()),
            sandbar_core::Base::Image(image) => details::word(image),
        },
    );
    tell("env", if env.is_empty() { Value::Null } else { details::env_names(env) });
    tell("ports", some(ports.iter().take(MAX_LISTED).map(|port| json!(port)).collect()));
    let volumes = volumes.iter().take(MAX_LISTED);
    tell("volumes", some(volumes.map(|mount| details::word(mount.volume.as_str())).collect()));
    let mounts = host_mounts.iter().take(MAX_LISTED).map(|mount| {
        json!({
            "source": details::word(&mount.source.to_string_lossy()),
            "target": details::word(&String::from_utf8_lossy(mount.target.as_bytes())),
            "access": mount.access,
        })
    });
    tell("mounts", some(mounts.collect()));
    tell("memory", resources.memory_bytes.into());
    tell("cpu", resources.cpu_millis.into());
    tell("pids", resources.pids.into());
    tell("disk", resources.disk_bytes.into());
    tell("egress", json!(egress));
    tell("deadline", deadline.map(|deadline| deadline.as_secs_f64()).into());
    tell("on_deadline", json!(on_deadline));
    tell("min_isolation", json!(min_isolation));
    tell("lifetime", json!(lifetime));
}

/// Ports, volumes and mounts told of one sandbox: more than people give, and a bound for those who give more.
const MAX_LISTED: usize = 16;

fn some(values: Vec<Value>) -> Value {
    if values.is_empty() { Value::Null } else { values.into() }
}
