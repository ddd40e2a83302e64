use std::sync::Arc;
use std::time::Duration;

use sandbar_core::{Error, ErrorKind, HibernationOutcome, Result, Retry, SandboxId, State};
use sandbar_guest::Failure;
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

use super::pool::Pool;
use crate::ask::{Answer, PATIENCE, ask};
use crate::error::{gone, held, not_running, unknown};
use crate::helper;
use crate::home::{Folder, Pending};
use crate::observe::{Observed, is_over, is_overdue};
use crate::provider::Inner;
use crate::shim::kept;
use crate::shim::protocol::{Op, ReadyOrder, Reply, Report, Task};

/// How often a shim may be found dead in one call.
const ATTEMPTS: usize = 5;
/// How long an agent may take from its last open connection to its end: the kernel ends everything else inside in between.
pub(super) const DYING: Duration = Duration::from_secs(1);
/// How long a sandbox may take from the end of its agent to the end of its record.
pub(super) const SETTLING: Duration = Duration::from_secs(3);

/// Between two looks at one that stands still for a copy: small ones take milliseconds.
const HELD: Duration = Duration::from_millis(5);

/// Whether a sandbox may sleep for what is asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asleep {
    Fine,
    No,
}

/// The way to one sandbox: its shim, its agent, and what is known of them.
#[derive(Debug)]
pub(crate) struct Link {
    inner: Arc<Inner>,
    id: SandboxId,
    pub(super) pool: Pool,
}

impl Link {
    pub(crate) fn new(inner: Arc<Inner>, id: SandboxId) -> Self {
        Self { inner, id, pool: Pool::default() }
    }

    pub(crate) fn id(&self) -> &SandboxId {
        &self.id
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// As [`Self::inner`], for what makes handles.
    pub(super) fn shared_inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// The folder of the sandbox, which runs and has a shim: one whose shim is gone is adopted by a new one.
    pub(super) async fn live(&self, operation: &'static str) -> Result<Folder> {
        Ok(self.guarded(operation, Asleep::No).await?.folder)
    }

    /// As [`Self::live`], of a sandbox whose agent can answer: one that stands still for a copy can't. That is waited for, and no longer than [`PATIENCE`].
    pub(super) async fn moving(&self, operation: &'static str) -> Result<Folder> {
        let end = Instant::now() + PATIENCE;
        loop {
            let seen = self.guarded(operation, Asleep::No).await?;
            if !is_held(&seen) {
                return Ok(seen.folder);
            }
            if Instant::now() >= end {
                return Err(held(operation, self.id.as_str(), seen.state(), PATIENCE));
            }
            sleep(HELD).await;
        }
    }

    /// Whether it is seen to stand still for a copy.
    pub(super) fn is_held(&self, operation: &'static str) -> bool {
        self.inner.look(&self.id, operation).is_ok_and(|seen| seen.as_ref().is_some_and(is_held))
    }

    /// The sandbox, which has a shim, and may sleep where that is fine.
    async fn guarded(&self, operation: &'static str, asleep: Asleep) -> Result<Observed> {
        let id = self.id.as_str();
        for _ in 0..ATTEMPTS {
            let seen = self.inner.look(&self.id, operation)?.ok_or_else(|| gone(operation, id))?;
            match seen.state() {
                State::Running if seen.guarded && is_overdue(&seen.record) => {
                    self.inner.destroy(&self.id).await?;
                    return Err(gone(operation, id).with_hint("it was destroyed: its deadline passed"));
                }
                State::Running if seen.guarded => return Ok(seen),
                State::Running => self.adopt(&seen, operation).await?,
                State::Sleeping if asleep == Asleep::Fine && seen.guarded => return Ok(seen),
                State::Sleeping if asleep == Asleep::Fine => self.adopt(&seen, operation).await?,
                state => return Err(not_running(operation, id, state, seen.record.reason.as_deref())),
            }
        }
        Err(unknown(operation, id, "its shim comes and goes"))
    }

    /// Starts a new shim for a sandbox whose own is gone.
    async fn adopt(&self, seen: &Observed, operation: &'static str) -> Result<()> {
        let over = is_over(&seen.record).map_err(|cause| unknown(operation, self.id.as_str(), cause))?;
        if let Some(why) = over {
            // A lookup that finds it dead does not bring it back; the new shim would destroy it, and so does this.
            self.inner.destroy(&self.id).await?;
            return Err(gone(operation, self.id.as_str()).with_hint(format!("it was destroyed: {why}")));
        }
        match self.shim(Task::Adopt(self.id.clone()), None, operation).await? {
            // Where another shim was faster, the next look finds it.
            Report::Ready { .. } | Report::Guarded => Ok(()),
            Report::Failed(error) => Err(error.into_error(operation)),
        }
    }

    /// Starts a sandbox again that is stopped; `None` means that it is not.
    pub(super) async fn start_again(&self, operation: &'static str) -> Result<Option<HibernationOutcome>> {
        let end = Instant::now() + SETTLING;
        loop {
            let seen = self.see(operation)?;
            if seen.state() != State::Stopped {
                return Ok(None);
            }
            let why = seen.public(None).reason.unwrap_or_else(|| "its processes ended".to_owned());
            let over = is_over(&seen.record).map_err(|cause| unknown(operation, self.id.as_str(), cause))?;
            if let (Some(why), false) = (over, seen.guarded) {
                self.inner.destroy(&self.id).await?;
                return Err(gone(operation, self.id.as_str()).with_hint(format!("it was destroyed: {why}")));
            }
            let orders = kept::orders(&seen.folder, &seen.record);
            // What can't be read is told by whoever starts it.
            let ready = orders.ok().flatten().and_then(|orders| orders.ready);
            match self.shim(Task::Start(self.id.clone()), ready.as_ref(), operation).await? {
                Report::Ready { .. } => {
                    let detail = Some(format!("it was stopped ({why}) and started again"));
                    let mechanism = "start".to_owned();
                    return Ok(Some(HibernationOutcome { processes_preserved: false, mechanism, detail }));
                }
                Report::Failed(error) => return Err(error.into_error(operation)),
                // Somebody starts it already, or its last shim is still on its way out.
                Report::Guarded if Instant::now() < end => sleep(Duration::from_millis(5)).await,
                Report::Guarded => return Err(unknown(operation, self.id.as_str(), "somebody guards it")),
            }
        }
    }

    /// Whether `error` comes of the end of its first process, also where nobody wrote that down yet. Until `dying` one that does not answer may be in the middle of that.
    pub(super) fn is_ending(&self, operation: &'static str, error: &Error, dying: Instant) -> Result<bool> {
        if error.kind() == ErrorKind::Unavailable && Instant::now() < dying {
            return Ok(true);
        }
        let seen = self.see(operation)?;
        let lives = match &seen.record.private.agent {
            Some(agent) => agent.lives().map_err(|cause| unknown(operation, self.id.as_str(), cause))?,
            None => true,
        };
        Ok(seen.state() == State::Stopped || !lives)
    }

    /// Starts a shim for this sandbox, and answers what it reports.
    async fn shim(&self, task: Task, ready: Option<&ReadyOrder>, operation: &'static str) -> Result<Report> {
        let executable = self.inner.executable()?;
        let abandon = |child| self.inner.adopt_child(None, child);
        let bound = helper::report_bound(&task, ready);
        let started = helper::start(&executable, &self.inner.home, task, bound, operation, &abandon).await?;
        self.inner.adopt_child(Some(self.id.clone()), started.child);
        Ok(started.report)
    }

    /// Asks the shim, adopting the sandbox first where it has none.
    pub(crate) async fn ask_shim(
        &self,
        op: impl Fn() -> Op,
        bound: Duration,
        operation: &'static str,
    ) -> Result<(Reply, BufReader<UnixStream>)> {
        self.ask(op, bound, operation, Asleep::No).await
    }

    /// The same of a sandbox that may sleep.
    pub(crate) async fn ask_shim_asleep(
        &self,
        op: impl Fn() -> Op,
        bound: Duration,
        operation: &'static str,
    ) -> Result<(Reply, BufReader<UnixStream>)> {
        self.ask(op, bound, operation, Asleep::Fine).await
    }

    /// Asks the shim of a sandbox that may sleep, for an answer alone.
    pub(crate) async fn ask_shim_of_any(
        &self,
        op: impl Fn() -> Op,
        bound: Duration,
        operation: &'static str,
    ) -> Result<Reply> {
        Ok(self.ask(op, bound, operation, Asleep::Fine).await?.0)
    }

    async fn ask(
        &self,
        op: impl Fn() -> Op,
        bound: Duration,
        operation: &'static str,
        asleep: Asleep,
    ) -> Result<(Reply, BufReader<UnixStream>)> {
        let end = Instant::now() + SETTLING;
        loop {
            let seen = self.guarded(operation, asleep).await?;
            match ask(&seen.folder, op(), bound, operation).await? {
                Answer::Reply(reply, stream) => return Ok((*reply, stream)),
                // A shim that begins or ends: what it leads to shows soon.
                Answer::Nobody if Instant::now() < end => sleep(Duration::from_millis(2)).await,
                Answer::Nobody => {
                    return Err(unknown(operation, self.id.as_str(), "its shim does not serve"));
                }
            }
        }
    }

    /// What a lost connection means: a sandbox that is gone or stopped says so, in anything else the outcome is unknown.
    pub(super) async fn lost(&self, operation: &'static str, failure: Failure) -> Error {
        let (text, sent) = match &failure {
            Failure::Gone => ("the agent does not listen any more".to_owned(), false),
            Failure::Broken(cause) => {
                (format!("the connection to the agent broke: {}", chain(&**cause)), true)
            }
            Failure::Connect(cause) => (format!("the agent can't be connected: {cause}"), false),
            Failure::Silent(bound) => (format!("the agent said nothing for {} s", bound.as_secs()), true),
        };
        let lost = |text: String| {
            Error::new(
                ErrorKind::Unavailable,
                operation,
                format!("the state of sandbox `{}` is unknown: {text}", self.id),
            )
            .with_backend(crate::config::BACKEND)
            .with_resource(format!("sandbox `{}`", self.id))
            .with_retry(if sent { Retry::OutcomeUnknown } else { Retry::Safe })
        };
        let (first_look, end) = (Instant::now() + DYING, Instant::now() + SETTLING);
        loop {
            match self.inner.look(&self.id, operation) {
                Ok(None) => return gone(operation, self.id.as_str()),
                Ok(Some(seen)) => {
                    let state = seen.state();
                    let agent_lives = match &seen.record.private.agent {
                        Some(agent) => agent.lives().unwrap_or(true),
                        None => true,
                    };
                    if state == State::Stopped {
                        return not_running(
                            operation,
                            self.id.as_str(),
                            state,
                            seen.record.reason.as_deref(),
                        );
                    }
                    // A dying agent closes its connections before it is dead: only an agent that goes on living is no news.
                    if agent_lives && state == State::Running && matches!(failure, Failure::Connect(_)) {
                        return lost(text);
                    }
                    let patience = if agent_lives && state == State::Running { first_look } else { end };
                    if Instant::now() >= patience {
                        return match state {
                            State::Running => lost(text),
                            state => not_running(operation, self.id.as_str(), state, None),
                        };
                    }
                }
                Err(error) => return lost(format!("{text}; and {error}")),
            }
            sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Whether its processes stand still for a copy, by the note in its record.
fn is_held(seen: &Observed) -> bool {
    matches!(seen.record.private.pending, Some(Pending::Copying(_)))
}

/// An error with what is behind it: hyper says nothing at the top.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
