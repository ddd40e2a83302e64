use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use sandbar_core::{
    BuildStep, ByteStream, Command, CreateOptions, EnvVars, Error, ErrorKind, GuestPath, Labels, Lifetime,
    ProcessEvent, Result, Sandbox, SandboxExt as _, SpawnOptions,
};

use super::lines::{Lines, Stream};
use super::run::Run;
use crate::error::{fail, io_error};
use crate::helper;
use crate::options;
use crate::sandbox::LocalSandbox;
use crate::shim::protocol::{Report, Task};
use crate::store::{Boot, TemplateDefaults};

const BUILD: &str = "build";
/// How long a step may take unless the build says otherwise.
pub(super) const STEP_TIME: Duration = Duration::from_secs(3600);
/// How much longer its sandbox may live: until its files are copied.
const AFTERWARDS: Duration = Duration::from_secs(1800);
/// Bytes of a piece of what is copied in.
const PIECE: usize = 256 << 10;

/// What a step copies.
pub(super) enum Content {
    Memory(Bytes),
    File(File),
}

impl Run {
    /// Makes the sandbox of a step.
    pub(super) async fn sandbox(&self, boot: &Boot) -> Result<LocalSandbox> {
        let inner = self.provider.inner();
        let mut options = CreateOptions::new()
            .with_lifetime(Lifetime::Owned)
            .with_deadline(self.step_time().saturating_add(AFTERWARDS))
            .with_labels(Labels::new().with("build", self.spec.template.as_str())?);
        options.egress.clone_from(&self.spec.egress);
        let mut orders = options::resolve(options, &inner.home, inner.defaults())?;
        let TemplateDefaults { env, workdir: _, user, start: _, ready: _ } = boot.defaults.clone();
        // Nothing is started in it but the step.
        let defaults = TemplateDefaults { env, user, ..TemplateDefaults::default() };
        orders.boot = Boot { defaults, ..boot.clone() };
        let executable = inner.executable()?;
        let abandon = |child| inner.adopt_child(None, child);
        let task = Task::Create(Box::new(orders));
        let bound = helper::report_bound(&task, None);
        let started = helper::start(&executable, &inner.home, task, bound, BUILD, &abandon).await?;
        match started.report {
            Report::Ready { id, .. } => {
                self.current.set(id.clone());
                inner.adopt_child(Some(id.clone()), started.child);
                inner.own(id.clone(), started.owner);
                Ok(LocalSandbox::new(Arc::clone(inner), id))
            }
            Report::Failed(error) => {
                inner.adopt_child(None, started.child);
                Err(error.into_error(BUILD))
            }
            Report::Guarded => {
                Err(fail(ErrorKind::Protocol, BUILD, "the shim took a creation for a take-over"))
            }
        }
    }

    /// Does a step that changes files.
    pub(super) async fn perform(
        &self,
        sandbox: &LocalSandbox,
        defaults: &TemplateDefaults,
        step: &BuildStep,
        content: Option<Content>,
    ) -> Result<()> {
        match (step, content) {
            (BuildStep::Run(command), _) => self.command(sandbox, defaults, command).await,
            (BuildStep::Workdir(path), _) => make_dir(sandbox, path).await,
            (BuildStep::Copy { to, .. } | BuildStep::CopyFile { to, .. }, Some(content)) => {
                make_dir(sandbox, to).await?;
                sandbox.import_anywhere(to, stream_of(content)).await.map(drop)
            }
            _ => Err(fail(ErrorKind::Unexpected, BUILD, "a step that has nothing to do")),
        }
    }

    async fn command(
        &self,
        sandbox: &LocalSandbox,
        defaults: &TemplateDefaults,
        command: &Command,
    ) -> Result<()> {
        let mut env = EnvVars::new();
        for (name, value) in &defaults.env {
            env.insert(name, value)?;
        }
        let options = SpawnOptions {
            cwd: defaults.workdir.as_ref().map(GuestPath::new).transpose()?,
            env,
            user: defaults.user.clone(),
            timeout: Some(self.step_time()),
            ..SpawnOptions::new()
        };
        let mut process = sandbox.require_processes()?.spawn(command, options).await?;
        let mut lines = Lines::default();
        while let Some(event) = process.events.next().await {
            let said = match event {
                Ok(ProcessEvent::Stdout(bytes) | ProcessEvent::Terminal(bytes)) => {
                    lines.take(Stream::Out, &bytes)
                }
                Ok(ProcessEvent::Stderr(bytes)) => lines.take(Stream::Err, &bytes),
                Ok(ProcessEvent::Exit(exit)) => {
                    self.lines(lines.rest()).await;
                    if exit.status.is_success() {
                        return Ok(());
                    }
                    let cause = exit.cause.map(|cause| format!(" (limit: {cause:?})")).unwrap_or_default();
                    return Err(ended(&format!("ended with {}{cause}", exit.status), &lines));
                }
                Ok(_) => continue,
                Err(error) if error.kind() == ErrorKind::Timeout => {
                    self.lines(lines.rest()).await;
                    let why = format!("was not done within {} s", self.step_time().as_secs());
                    return Err(Error::new(
                        ErrorKind::Timeout,
                        BUILD,
                        ended(&why, &lines).message().to_owned(),
                    ));
                }
                Err(error) => return Err(error),
            };
            self.lines(said).await;
        }
        Err(fail(ErrorKind::Unavailable, BUILD, "nobody knows how its command ended"))
    }

    pub(super) fn step_time(&self) -> Duration {
        self.spec.step_timeout.unwrap_or(STEP_TIME)
    }
}

fn ended(how: &str, lines: &Lines) -> Error {
    let last = lines.last_words();
    let last = if last.is_empty() { "it said nothing".to_owned() } else { format!("its last words: {last}") };
    fail(ErrorKind::Unexpected, BUILD, format!("{how}; {last}"))
}

async fn make_dir(sandbox: &LocalSandbox, path: &GuestPath) -> Result<()> {
    let made = sandbox.files().make_dir(path).await;
    made.map(drop).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => {
            error.with_hint("choose a folder below `/home/user`, or set another `USER` before")
        }
        _ => error,
    })
}

fn stream_of(content: Content) -> ByteStream {
    match content {
        Content::Memory(mut bytes) => stream::iter(std::iter::from_fn(move || {
            let piece = bytes.split_to(bytes.len().min(PIECE));
            (!piece.is_empty()).then_some(Ok(piece))
        }))
        .boxed(),
        Content::File(file) => stream::try_unfold(file, |mut file| async move {
            let read = tokio::task::spawn_blocking(move || {
                use std::io::Read as _;
                let mut piece = vec![0; PIECE];
                let got = file.read(&mut piece)?;
                piece.truncate(got);
                Ok::<_, std::io::Error>((piece, file))
            });
            let (piece, file) = read
                .await
                .map_err(std::io::Error::other)
                .flatten()
                .map_err(|cause| io_error(BUILD, "the archive of a step", cause))?;
            Ok((!piece.is_empty()).then(|| (Bytes::from(piece), file)))
        })
        .boxed(),
    }
}
