use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use sandbar_core::{
    BuildLog, BuildSpec, CreateOptions, EgressPolicy, EnvVars, Error, Lifetime, Template, TemplateId,
};
use sandbar_wire::e2b::Metadata;
use tokio::time::Instant;

use super::order::{Order, Step};
use super::plan::{self, Plan};
use super::upload::make_private;
use super::work::Ticket;
use crate::app::App;
use crate::config::DefaultEgress;
use crate::control::READY_ROOM;
use crate::marks::Marks;
use crate::store::{BuildRow, Finished, Level, LogRow, TemplateRow};

/// How long a build may take.
const TIME: Duration = Duration::from_secs(6 * 3600);

/// Words that are kept of a build.
const MAX_WORDS: usize = 20_000;

/// Longest word, in bytes.
const MAX_WORD: usize = 8 << 10;

/// How long words wait for others before they are kept.
const FLUSH: Duration = Duration::from_millis(150);

/// Words that wait at most.
const BATCH: usize = 64;

/// A build, to be done.
pub(super) struct Job {
    pub(super) app: Arc<App>,
    pub(super) tenant: String,
    pub(super) template: TemplateRow,
    pub(super) build: BuildRow,
    pub(super) order: Order,
}

/// Why a build failed, and in which step.
struct Failure {
    message: String,
    step: String,
}

impl Failure {
    fn new(step: impl Into<String>, message: impl Into<String>) -> Self {
        Self { message: message.into(), step: step.into() }
    }

    fn of(step: impl Into<String>, error: &Error) -> Self {
        let hint = error.hint().map(|hint| format!(": {hint}")).unwrap_or_default();
        Self::new(step, format!("{}{hint}", error.message()))
    }
}

impl Job {
    /// Does it, and writes down how it ended.
    pub(super) async fn run(self, ticket: Ticket) {
        let mut log = Log { job: &self, waiting: Vec::new(), count: 0, since: Instant::now() };
        let work = tokio::time::timeout(TIME, self.done(&mut log));
        let done = tokio::select! {
            done = work => done.unwrap_or_else(|_| {
                Err(Failure::new("base", format!("the build was not done within {} s", TIME.as_secs())))
            }),
            () = ticket.stop.cancelled() => {
                Err(Failure::new("base", "the build was ended: its template was deleted or the server stops"))
            }
        };
        let (store, id) = (&self.app.store, &self.build.id);
        if let Err(failure) = &done {
            log.say(Level::Error, Some(&failure.step), &failure.message).await;
        }
        log.flush().await;
        let noted = match done {
            Ok(finished) => store.finish_build(id, &self.build.provider, finished).await.map(drop),
            Err(failure) => store.fail_build(id, &failure.message, Some(&failure.step)).await,
        };
        if let Err(error) = noted {
            tracing::error!(build = id, %error, "how a build ended could not be kept: the next start marks it as failed");
        }
        self.app.builds.kick();
        drop(ticket);
    }

    async fn done(&self, log: &mut Log<'_>) -> Result<Finished, Failure> {
        let mut turn = std::pin::pin!(self.app.builds.slot(&self.tenant));
        let turn = match futures::poll!(turn.as_mut()) {
            std::task::Poll::Ready(turn) => turn,
            std::task::Poll::Pending => {
                log.say(Level::Info, Some("base"), "Waiting for other builds").await;
                log.flush().await;
                turn.await
            }
        };
        let Ok(_slot) = turn else {
            return Err(Failure::new("base", "the server stops"));
        };
        let names = format!("Building template {}/{}", self.template.id, self.build.id);
        log.say(Level::Info, Some("base"), &names).await;
        self.check_room().await?;
        let base = &self.order.base;
        log.say(Level::Info, Some("base"), &format!("[base] FROM {}", base.name)).await;
        let looked = self.app.probe(&self.tenant, base.provider.as_ref()).await;
        let surroundings = looked.map_err(|error| Failure::of("base", &error))?;
        let (folder, plan) = self.plan(surroundings).await?;
        let template = self.build(&plan, log).await?;
        drop(folder);
        if self.order.ready.is_some() {
            log.say(Level::Info, Some("finalize"), "[finalize] waiting for the ready command").await;
            log.flush().await;
            if let Err(failure) = self.try_out(&template.id).await {
                self.take_back(&template.id).await;
                return Err(failure);
            }
        }
        log.say(Level::Info, Some("finalize"), "Build finished").await;
        Ok(Finished { user: Some(plan.user), workdir: Some(plan.workdir), size_bytes: template.size_bytes })
    }

    /// Whether there is as much disk space as was asked for.
    async fn check_room(&self) -> Result<(), Failure> {
        let (Some(wanted), Some(capacity)) = (self.build.free_disk_mb, self.app.provider.capacity()) else {
            return Ok(());
        };
        let free = capacity.measure().await.map_err(|error| Failure::of("base", &error))?.disk_bytes;
        match free.map(|free| free >> 20) {
            Some(free) if free < wanted => Err(Failure::new(
                "base",
                format!("minFreeDiskMb is {wanted}, and there are {free} MiB of free disk space"),
            )),
            _ => Ok(()),
        }
    }

    /// The backend's steps, and the folder with the archives that they copy.
    async fn plan(
        &self,
        surroundings: super::probe::Surroundings,
    ) -> Result<(tempfile::TempDir, Plan), Failure> {
        let copies = self.order.steps.iter().filter_map(|step| match step {
            Step::Copy(copy) => Some(copy),
            _ => None,
        });
        let uploads: Result<Vec<_>, _> =
            copies.map(|copy| self.app.uploaded(&self.tenant, &copy.hash)).collect();
        let uploads = uploads.map_err(|error| Failure::new("base", error.message))?;
        let (folder, order) = (self.app.config.data.join("builds"), self.order.clone());
        let planned = tokio::task::spawn_blocking(move || {
            let made = make_private(&folder).and_then(|()| tempfile::TempDir::new_in(&folder));
            let folder = made.map_err(|error| {
                Failure::new("base", format!("the server could not make a folder for the build: {error}"))
            })?;
            let plan = plan::plan(&order, &surroundings, &uploads, folder.path())
                .map_err(|unplanned| Failure::new(unplanned.step.to_string(), unplanned.why))?;
            Ok((folder, plan))
        });
        planned.await.unwrap_or_else(|error| Err(Failure::new("base", format!("it was broken off: {error}"))))
    }

    async fn build(&self, plan: &Plan, log: &mut Log<'_>) -> Result<Template, Failure> {
        let failed = |step: &str, error: &Error| Failure::of(step, error);
        let id = TemplateId::new(self.build.provider.as_str()).map_err(|error| failed("base", &error))?;
        let mut spec =
            BuildSpec::new(id, plan.steps.clone()).with_cache(self.order.cache).with_egress(self.egress());
        spec.base.clone_from(&self.order.base.provider);
        // Nobody learns from a build, or from its time, what another tenant has built.
        spec.scope = Some(self.app.seal.token("build cache", &[&self.tenant]));
        let Some(builds) = self.app.provider.builds() else {
            return Err(Failure::new("base", "the backend builds no templates"));
        };
        let mut words = builds.build(spec).await.map_err(|error| failed("base", &error))?;
        let mut step = "base".to_owned();
        loop {
            let Ok(next) = tokio::time::timeout_at(log.due(), words.next()).await else {
                log.flush().await;
                continue;
            };
            match next {
                Some(Ok(BuildLog::Step { number, is_cached, .. })) => {
                    let Some((index, is_main)) = plan.labels.get(number.saturating_sub(1)) else { continue };
                    step = self.name(*index);
                    if *is_main {
                        log.say(Level::Info, Some(&step), &self.headline(*index, is_cached)).await;
                    }
                }
                Some(Ok(BuildLog::Line(line))) => log.say(Level::Info, Some(&step), &line).await,
                Some(Ok(BuildLog::Done(template))) => return Ok(template),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(self.failure(&step, &error)),
                None => return Err(Failure::new(step, "the backend did not say how the build ended")),
            }
        }
    }

    /// Starts a sandbox of what was built: the backend waits until it is ready. Who learns only later that it never is has a template that nobody can use.
    async fn try_out(&self, template: &TemplateId) -> Result<(), Failure> {
        let failed = |error: &Error| Failure::of("finalize", error);
        let marks = Marks { tenant: self.tenant.clone(), is_internal: true, ..Marks::default() };
        let labels = marks.to_labels(&Metadata::new());
        let labels = labels.map_err(|error| Failure::new("finalize", error.message))?;
        let env = [("E2B_SANDBOX", "true"), ("E2B_TEMPLATE_ID", self.template.id.as_str())];
        let env = env.iter().try_fold(EnvVars::new(), |env, (name, value)| env.with(*name, *value));
        let mut options = CreateOptions::new()
            .with_template(template.clone())
            .with_labels(labels)
            .with_egress(self.egress())
            .with_deadline(READY_ROOM)
            .with_lifetime(Lifetime::Owned);
        options.env = env.map_err(|error| failed(&error))?;
        let sandbox = self.app.provider.create(options).await.map_err(|error| failed(&error))?;
        sandbox.destroy().await.map(drop).map_err(|error| failed(&error))
    }

    /// Removes what was built and is of no use.
    async fn take_back(&self, template: &TemplateId) {
        let Some(templates) = self.app.provider.templates() else { return };
        if let Err(error) = templates.remove(template).await {
            tracing::warn!(%template, %error, "a template that never gets ready is left");
        }
    }

    /// What sandboxes reach whose creator says nothing.
    fn egress(&self) -> EgressPolicy {
        match self.app.config.default_egress {
            DefaultEgress::Internet => EgressPolicy::AllowAll,
            DefaultEgress::None => EgressPolicy::DenyAll,
        }
    }

    /// Why a step failed: with the order's words for it, not the backend's.
    fn failure(&self, step: &str, error: &Error) -> Failure {
        let message = error.message();
        let why = message
            .strip_prefix("step ")
            .and_then(|rest| rest.split_once("`: "))
            .map_or(message, |(_, why)| why);
        let ordered =
            step.parse::<usize>().ok().and_then(|number| self.order.steps.get(number.wrapping_sub(1)));
        match ordered {
            Some(ordered) => Failure::new(step, format!("{}: {why}", bounded(&ordered.text()))),
            None => Failure::of(step, error),
        }
    }

    /// A step as errors and logs name it.
    fn name(&self, index: usize) -> String {
        if index > self.order.steps.len() { "finalize".to_owned() } else { index.to_string() }
    }

    fn headline(&self, index: usize, is_cached: bool) -> String {
        let cached = if is_cached { "CACHED " } else { "" };
        match self.order.steps.get(index - 1) {
            Some(step) => format!("{cached}[builder {index}/{}] {}", self.order.steps.len(), step.text()),
            None => "[finalize] start and ready commands".to_owned(),
        }
    }
}

/// The log of a build, kept a few words at a time.
struct Log<'a> {
    job: &'a Job,
    waiting: Vec<LogRow>,
    count: usize,
    since: Instant,
}

impl Log<'_> {
    async fn say(&mut self, level: Level, step: Option<&str>, message: &str) {
        self.count += 1;
        let message = match self.count {
            count if count < MAX_WORDS || level == Level::Error => bounded(message),
            MAX_WORDS => format!("the log has {MAX_WORDS} entries: what follows is left out"),
            _ => return,
        };
        if self.waiting.is_empty() {
            self.since = Instant::now();
        }
        self.waiting.push(LogRow::new(level, step.map(str::to_owned), message));
        if self.waiting.len() >= BATCH {
            self.flush().await;
        }
    }

    /// When what waits is to be kept.
    fn due(&self) -> Instant {
        if self.waiting.is_empty() { Instant::now() + TIME } else { self.since + FLUSH }
    }

    async fn flush(&mut self) {
        let words = std::mem::take(&mut self.waiting);
        if words.is_empty() {
            return;
        }
        if let Err(error) = self.job.app.store.log_build(&self.job.build.id, words).await {
            tracing::warn!(build = self.job.build.id, %error, "words of a build could not be kept");
        }
    }
}

/// A word without what a terminal would act upon, and not too long.
fn bounded(message: &str) -> String {
    let mut text: String = message.chars().filter(|c| !c.is_control() || *c == '\t').collect();
    if text.len() > MAX_WORD {
        let end = (0..=MAX_WORD).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text
}
