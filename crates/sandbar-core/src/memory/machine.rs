use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use super::disk::NodeId;
use super::main_command::Main;
use super::process::{Freezer, ProcessTable};
use super::program::Registry;
use super::world::{BACKEND, DEFAULT_TEMPLATE, SIGKILL, SharedDisk};
use crate::{
    DeadlineAction, EgressPolicy, EgressSummary, EnvVars, Error, Isolation, IsolationReport, Labels, Limit,
    LimitState, ProjectId, Resources, Result, SandboxId, SandboxName, SandboxRecord, State, TemplateId,
    VolumeAttachment,
};

/// One emulated sandbox.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) id: SandboxId,
    pub(super) plan: Plan,
    pub(super) root: NodeId,
    pub(super) created_at: Timestamp,
    pub(super) disk: SharedDisk,
    pub(super) programs: Arc<Registry>,
    pub(super) processes: ProcessTable,
    pub(super) freezer: Freezer,
    pub(super) timer: super::deadline::Timer,
    main: OnceLock<Arc<Main>>,
    status: Mutex<Status>,
}

/// What was asked for and is kept.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) name: Option<SandboxName>,
    pub(super) project: Option<ProjectId>,
    pub(super) template: Option<TemplateId>,
    pub(super) labels: Labels,
    pub(super) env: EnvVars,
    pub(super) resources: Resources,
    pub(super) volumes: Vec<VolumeAttachment>,
}

#[derive(Debug)]
struct Status {
    state: State,
    deadline: Option<Timestamp>,
    /// How much time the deadline gave when it was set.
    lifetime: Option<Duration>,
    on_deadline: DeadlineAction,
    reason: Option<String>,
    resources: Resources,
}

impl Machine {
    pub(super) fn new(
        id: SandboxId,
        plan: Plan,
        root: NodeId,
        disk: SharedDisk,
        programs: Arc<Registry>,
        on_deadline: DeadlineAction,
    ) -> Self {
        let resources = plan.resources;
        Self {
            id,
            plan,
            root,
            created_at: Timestamp::now(),
            disk,
            programs,
            processes: ProcessTable::default(),
            freezer: Freezer::default(),
            timer: super::deadline::Timer::default(),
            main: OnceLock::new(),
            status: Mutex::new(Status {
                state: State::Running,
                deadline: None,
                lifetime: None,
                on_deadline,
                reason: None,
                resources,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses what a sandbox that does not run can't do.
    pub(super) fn check_running(&self, operation: &'static str) -> Result<()> {
        let state = self.lock().state;
        if state == State::Running {
            return Ok(());
        }
        Err(Error::conflict(operation, state, format!("sandbox `{}` is {state}", self.id))
            .with_backend(BACKEND)
            .with_resource(format!("sandbox `{}`", self.id))
            .with_hint("wake it first"))
    }

    pub(super) fn state(&self) -> State {
        self.lock().state
    }

    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.lock().deadline
    }

    pub(super) fn set_deadline(&self, deadline: Option<Timestamp>) {
        let lifetime = deadline.map(|at| at.duration_since(Timestamp::now()).unsigned_abs());
        {
            let mut status = self.lock();
            (status.deadline, status.lifetime) = (deadline, lifetime);
        }
        self.timer.changed();
    }

    pub(super) fn on_deadline(&self) -> DeadlineAction {
        self.lock().on_deadline
    }

    pub(super) fn set_on_deadline(&self, action: DeadlineAction) {
        self.lock().on_deadline = action;
    }

    /// The limits in force.
    pub(super) fn resources(&self) -> Resources {
        self.lock().resources
    }

    /// Changes the limits that are given.
    pub(super) fn change_resources(&self, given: Resources) {
        let now = &mut self.lock().resources;
        now.memory_bytes = given.memory_bytes.or(now.memory_bytes);
        now.cpu_millis = given.cpu_millis.or(now.cpu_millis);
        now.pids = given.pids.or(now.pids);
        now.disk_bytes = given.disk_bytes.or(now.disk_bytes);
    }

    /// Its main command, if it has one.
    pub(super) fn main(&self) -> Option<Arc<Main>> {
        self.main.get().cloned()
    }

    /// Gives it its main command, once.
    pub(super) fn set_main(&self, main: Arc<Main>) {
        let set = self.main.set(main);
        debug_assert!(set.is_ok(), "a sandbox has one main command");
    }

    pub(super) fn is_due(&self) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= Timestamp::now())
    }

    /// Freezes it; `false` if it slept already.
    pub(super) fn sleep(&self) -> bool {
        let mut status = self.lock();
        self.freezer.freeze();
        std::mem::replace(&mut status.state, State::Sleeping) != State::Sleeping
    }

    /// Puts it to sleep because its time is over. A sleeping sandbox has no deadline any more: nothing can happen to it by itself.
    pub(super) fn sleep_at_deadline(&self) {
        self.sleep();
        let mut status = self.lock();
        status.deadline = None;
        status.reason = Some("its deadline passed".to_owned());
    }

    /// Thaws it; `false` if it ran already.
    pub(super) fn wake(&self) -> bool {
        let slept = {
            let mut status = self.lock();
            status.reason = None;
            let slept = std::mem::replace(&mut status.state, State::Running) == State::Sleeping;
            if slept {
                status.deadline = status.deadline_after_sleep();
            }
            slept
        };
        self.freezer.thaw();
        self.timer.changed();
        slept
    }

    /// Ends all that runs in it.
    pub(super) fn end(&self) {
        self.lock().state = State::Destroying;
        self.processes.kill_all(SIGKILL);
        self.freezer.thaw();
        self.timer.stop();
    }

    pub(super) fn record(&self) -> SandboxRecord {
        let status = self.lock();
        let Plan { name, project, template, labels, env: _, resources: _, volumes } = &self.plan;
        SandboxRecord {
            version: SandboxRecord::VERSION,
            id: self.id.clone(),
            name: name.clone(),
            project: project.clone(),
            state: status.state,
            template: Some(template.as_ref().map_or(DEFAULT_TEMPLATE, TemplateId::as_str).to_owned()),
            labels: labels.clone(),
            created_at: Some(self.created_at),
            started_at: Some(self.created_at),
            deadline: status.deadline,
            on_deadline: status.on_deadline,
            isolation: IsolationReport { tier: Isolation::Emulated, ids: None },
            fallbacks: Vec::new(),
            limits: limits(status.resources),
            last_kill: None,
            ports: Vec::new(),
            egress: EgressSummary { policy: Some(EgressPolicy::DenyAll), gateway: None },
            main: self.main().map(|main| main.status()),
            volumes: volumes.clone(),
            reason: status.reason.clone(),
        }
    }
}

impl Status {
    /// Its deadline once it is woken: where it sleeps at it, it has as much time again as it was given.
    fn deadline_after_sleep(&self) -> Option<Timestamp> {
        if self.on_deadline == DeadlineAction::Destroy {
            return self.deadline;
        }
        self.deadline.max(self.lifetime.and_then(|lifetime| Timestamp::now().checked_add(lifetime).ok()))
    }
}

/// The limits asked for. Nothing stands behind them: emulated programs use next to nothing.
fn limits(resources: Resources) -> BTreeMap<String, Limit> {
    let Resources { memory_bytes, cpu_millis, pids, disk_bytes } = resources;
    [
        ("memory", memory_bytes),
        ("cpu", cpu_millis.map(u64::from)),
        ("pids", pids.map(u64::from)),
        ("disk", disk_bytes),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), Limit { value, state: LimitState::None, hits: None }))
    .collect()
}
