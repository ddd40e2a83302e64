use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    Command, EgressPolicy, EnvVars, Error, GuestPath, Labels, PortPublication, ProjectId, Result,
    SandboxName, State, TemplateId, UserName, VolumeName,
};

/// What a new sandbox shall be.
///
/// Every field is either honoured or refused before any effect. Backends take this apart exhaustively, so a new field does not compile
/// until each backend decides.
#[derive(Clone, Debug, Default)]
pub struct CreateOptions {
    /// The caller's project; found again in the record.
    pub project: Option<ProjectId>,
    /// A name, unique among the backend's sandboxes.
    pub name: Option<SandboxName>,
    /// What it boots from.
    pub base: Base,
    /// Environment of every command, kept by the backend: not for secrets.
    pub env: EnvVars,
    /// Environment that the caller will deliver itself. Checked like `env`, then forgotten: never stored, sent or logged.
    pub self_delivered_env: EnvVars,
    /// The caller's labels.
    pub labels: Labels,
    /// The main command, started with the sandbox.
    pub main: Option<MainCommand>,
    /// Ports inside that the caller wants to reach, and where. A place that can't be had is an error before anything runs, as of
    /// [`Ports::publish_at`](crate::Ports::publish_at).
    pub ports: Vec<PortPublication>,
    /// Volumes and where they appear.
    pub volumes: Vec<VolumeMount>,
    /// Folders or files of the host and where they appear.
    pub host_mounts: Vec<HostMount>,
    /// Limits.
    pub resources: Resources,
    /// Whether a limit that is merely watched, or not there at all, is good enough.
    pub limit_demand: LimitDemand,
    /// What it may reach; the backend's own default if absent.
    pub egress: Option<EgressPolicy>,
    /// How long it may live, from the moment it is ready; the backend's own default if absent.
    pub deadline: Option<Duration>,
    /// What happens at the deadline.
    pub on_deadline: DeadlineAction,
    /// The weakest isolation that will do. A backend that has only weaker fails.
    pub min_isolation: Isolation,
    /// Whether it outlives the process that makes it.
    pub lifetime: Lifetime,
}

/// What a sandbox boots from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Base {
    /// The backend's own default.
    #[default]
    Default,
    /// A template by the caller's id. Its absence is an error, never a silent default.
    Template(TemplateId),
    /// An image reference in the backend's own form.
    Image(String),
}

/// The command that a sandbox is for.
///
/// It is started with the sandbox: one that can't be started makes `create` fail, with nothing left. Its end does not end the sandbox. One
/// that is to be started again is so after a pause, which grows while it keeps ending early.
#[derive(Clone, Debug)]
pub struct MainCommand {
    /// What to run. Never parsed by a shell.
    pub command: Command,
    /// What to do when it ends.
    pub restart: RestartPolicy,
    /// Working folder; the user's home if absent.
    pub cwd: Option<GuestPath>,
    /// Environment over the sandbox's own; kept by the backend for as long as it may start the command again.
    pub env: EnvVars,
    /// Who runs it; the template's default user if absent.
    pub user: Option<UserName>,
}

/// What to do when the main command ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// Leave it.
    #[default]
    No,
    /// Start it again if it failed.
    OnFailure,
    /// Start it again.
    Always,
}

/// A volume and where it appears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeMount {
    /// Which volume.
    pub volume: VolumeName,
    /// Where. What the template has there is hidden.
    pub path: GuestPath,
}

/// A folder or file of the host and where it appears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMount {
    /// On the host, absolute.
    pub source: PathBuf,
    /// In the sandbox.
    pub target: GuestPath,
    /// What the sandbox may do with it.
    pub access: MountAccess,
}

/// What a sandbox may do with a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MountAccess {
    /// Read.
    #[default]
    ReadOnly,
    /// Read and write.
    ReadWrite,
}

/// Limits of a sandbox. An absent one takes the backend's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Processor time in thousandths of a core.
    pub cpu_millis: Option<u32>,
    /// Processes and threads.
    pub pids: Option<u32>,
    /// Writable disk space in bytes.
    pub disk_bytes: Option<u64>,
}

/// How firm the limits have to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitDemand {
    /// Take what the host can do; the record says what that is.
    #[default]
    BestEffort,
    /// Every limit named in [`Resources`], and those on memory and processes even if not named, must be [`LimitState::Enforced`](crate::LimitState::Enforced), else create fails.
    Enforced,
}

/// What happens at the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeadlineAction {
    /// The sandbox is destroyed.
    #[default]
    Destroy,
    /// The sandbox is put to sleep.
    Pause,
}

/// How strong the wall is, weakest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Isolation {
    /// No wall: nothing runs for real. Only the reference backend.
    #[default]
    Emulated,
    /// Kernel namespaces, seccomp, capabilities: one kernel, shared.
    Namespaces,
    /// A kernel in user space between the program and the host's.
    Gvisor,
    /// A virtual machine.
    MicroVm,
}

/// Whether a sandbox outlives the process that makes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lifetime {
    /// Until it is destroyed or its deadline passes.
    #[default]
    Detached,
    /// No longer than the process that made it, however that ends.
    Owned,
}

/// When a sandbox ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// At this time.
    At(Timestamp),
    /// This long from now.
    In(Duration),
    /// Not by itself.
    Never,
}

/// How a new deadline and the one in force go together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeadlineMode {
    /// The new one counts, earlier or later.
    #[default]
    Set,
    /// The later one counts.
    ExtendOnly,
}

/// How to get a handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// What to do with a sleeping sandbox.
    pub wake: Wake,
}

/// What to do with a sleeping sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wake {
    /// Let it sleep.
    #[default]
    No,
    /// Wake it.
    Yes,
}

/// Which sandboxes to list. Everything given must match.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Labels that must all be there with these values.
    pub labels: Labels,
    /// States; all if empty.
    pub states: Vec<State>,
    /// The project.
    pub project: Option<ProjectId>,
}

impl CreateOptions {
    /// Defaults throughout.
    pub fn new() -> Self {
        Self::default()
    }

    /// Boots from a template.
    pub fn with_template(mut self, template: TemplateId) -> Self {
        self.base = Base::Template(template);
        self
    }

    /// Sets the project.
    pub fn with_project(mut self, project: ProjectId) -> Self {
        self.project = Some(project);
        self
    }

    /// Sets the name.
    pub fn with_name(mut self, name: SandboxName) -> Self {
        self.name = Some(name);
        self
    }

    /// Sets the stored environment.
    pub fn with_env(mut self, env: EnvVars) -> Self {
        self.env = env;
        self
    }

    /// Sets the environment that the caller delivers itself.
    pub fn with_self_delivered_env(mut self, env: EnvVars) -> Self {
        self.self_delivered_env = env;
        self
    }

    /// Sets the labels.
    pub fn with_labels(mut self, labels: Labels) -> Self {
        self.labels = labels;
        self
    }

    /// Sets the main command.
    pub fn with_main(mut self, main: MainCommand) -> Self {
        self.main = Some(main);
        self
    }

    /// Publishes guest ports, wherever the backend likes.
    pub fn with_ports(mut self, ports: impl IntoIterator<Item = u16>) -> Self {
        self.ports = ports.into_iter().map(PortPublication::new).collect();
        self
    }

    /// Publishes one more guest port, at a place of the caller's choice.
    pub fn with_publication(mut self, port: PortPublication) -> Self {
        self.ports.push(port);
        self
    }

    /// Adds a volume.
    pub fn with_volume(mut self, mount: VolumeMount) -> Self {
        self.volumes.push(mount);
        self
    }

    /// Adds a folder or file of the host.
    pub fn with_host_mount(mut self, mount: HostMount) -> Self {
        self.host_mounts.push(mount);
        self
    }

    /// Sets the limits.
    pub fn with_resources(mut self, resources: Resources) -> Self {
        self.resources = resources;
        self
    }

    /// Sets how firm the limits have to be.
    pub fn with_limit_demand(mut self, demand: LimitDemand) -> Self {
        self.limit_demand = demand;
        self
    }

    /// Sets the egress policy.
    pub fn with_egress(mut self, egress: EgressPolicy) -> Self {
        self.egress = Some(egress);
        self
    }

    /// Sets how long it may live.
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets what happens at the deadline.
    pub fn with_on_deadline(mut self, action: DeadlineAction) -> Self {
        self.on_deadline = action;
        self
    }

    /// Sets the weakest isolation that will do.
    pub fn with_min_isolation(mut self, isolation: Isolation) -> Self {
        self.min_isolation = isolation;
        self
    }

    /// Sets whether it outlives its maker.
    pub fn with_lifetime(mut self, lifetime: Lifetime) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// Refuses what no backend could honour: port 0, a port or mount target named twice, a mount at `/`, a zero limit, a zero deadline, an
    /// empty main command, a host mount that is not absolute.
    pub fn check(&self) -> Result<()> {
        let complain = |why: String| Err(Error::invalid("create", why));
        PortPublication::check_all("create", &self.ports)?;
        if let Some(main) = &self.main {
            main.command.check()?;
        }
        let targets = self.volumes.iter().map(|v| &v.path).chain(self.host_mounts.iter().map(|m| &m.target));
        let mut targets: Vec<_> = targets.collect();
        targets.sort();
        if targets.iter().any(|target| target.is_root()) {
            return complain("a mount can't cover `/`: name a folder below it".into());
        }
        if let Some([target, ..]) = targets.windows(2).find(|pair| pair[0] == pair[1]) {
            return complain(format!("two mounts at `{target}`"));
        }
        if let Some(mount) = self.host_mounts.iter().find(|mount| !mount.source.is_absolute()) {
            return complain(format!("mount source `{}` is not absolute", mount.source.display()));
        }
        self.resources.check("create")?;
        if self.deadline == Some(Duration::ZERO) {
            return complain("a deadline of 0 is not valid: expected a positive duration".into());
        }
        Ok(())
    }
}

impl MainCommand {
    /// A main command that is left when it ends.
    pub fn new(command: Command) -> Self {
        Self { command, restart: RestartPolicy::No, cwd: None, env: EnvVars::new(), user: None }
    }

    /// Sets what to do when it ends.
    pub fn with_restart(mut self, restart: RestartPolicy) -> Self {
        self.restart = restart;
        self
    }

    /// Sets the working folder.
    pub fn with_cwd(mut self, cwd: GuestPath) -> Self {
        self.cwd = Some(cwd);
        self
    }

    /// Sets the environment over the sandbox's own.
    pub fn with_env(mut self, env: EnvVars) -> Self {
        self.env = env;
        self
    }

    /// Sets who runs it.
    pub fn with_user(mut self, user: UserName) -> Self {
        self.user = Some(user);
        self
    }
}

impl Resources {
    /// Refuses a limit of 0, which nothing could live in.
    pub fn check(&self, operation: &'static str) -> Result<()> {
        let Self { memory_bytes, cpu_millis, pids, disk_bytes } = *self;
        let limits = [
            ("memory", memory_bytes),
            ("cpu", cpu_millis.map(u64::from)),
            ("pids", pids.map(u64::from)),
            ("disk", disk_bytes),
        ];
        match limits.iter().find(|(_, value)| *value == Some(0)) {
            None => Ok(()),
            Some((name, _)) => Err(Error::invalid(
                operation,
                format!("a {name} limit of 0 is not valid: expected a positive number, or none"),
            )),
        }
    }

    /// Whether no limit is named.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Sets the memory limit in bytes.
    pub fn with_memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    /// Sets the processor limit in thousandths of a core.
    pub fn with_cpu_millis(mut self, millis: u32) -> Self {
        self.cpu_millis = Some(millis);
        self
    }

    /// Sets the limit on processes and threads.
    pub fn with_pids(mut self, pids: u32) -> Self {
        self.pids = Some(pids);
        self
    }

    /// Sets the limit on writable disk space in bytes.
    pub fn with_disk_bytes(mut self, bytes: u64) -> Self {
        self.disk_bytes = Some(bytes);
        self
    }
}

impl Query {
    /// Everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only with these labels.
    pub fn with_labels(mut self, labels: Labels) -> Self {
        self.labels = labels;
        self
    }

    /// Only in these states.
    pub fn with_states(mut self, states: impl IntoIterator<Item = State>) -> Self {
        self.states = states.into_iter().collect();
        self
    }

    /// Only of this project.
    pub fn with_project(mut self, project: ProjectId) -> Self {
        self.project = Some(project);
        self
    }

    /// Whether `record` matches.
    pub fn matches(&self, record: &crate::SandboxRecord) -> bool {
        record.labels.contains_all(&self.labels)
            && (self.states.is_empty() || self.states.contains(&record.state))
            && (self.project.is_none() || self.project == record.project)
    }
}
