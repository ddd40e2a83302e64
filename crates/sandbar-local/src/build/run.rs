use std::sync::Arc;

use sandbar_core::{BuildCache, BuildLog, BuildSpec, BuildStep, Command, Error, ErrorKind, Result, Template};
use tokio::sync::mpsc;

use super::cache;
use super::key::{Key, digest_of, opened};
use super::part::Current;
use super::step::Content;
use crate::capture::{Captured, capture, size};
use crate::error::fail;
use crate::home::Home;
use crate::provider::LocalProvider;
use crate::sandbox::LocalSandbox;
use crate::store::{Boot, Hold, LayerId, Pin, StoreLock, TemplateDefaults, TemplateDocument};

const BUILD: &str = "build";
/// Longest text of a step that is shown, in characters.
const SHOWN: usize = 200;

/// A build on its way.
pub(super) struct Run {
    pub(super) provider: LocalProvider,
    pub(super) spec: BuildSpec,
    /// What it is built over.
    pub(super) boot: Boot,
    pub(super) say: mpsc::Sender<Result<BuildLog>>,
    pub(super) current: Current,
}

impl Run {
    /// Does all steps, and gives the template its name at the end.
    pub(super) async fn run(self) -> Result<Template> {
        let mut boot = self.boot.clone();
        let mut key = Key::of_base(&boot, self.spec.scope.as_deref())?;
        let of = self.spec.steps.len();
        // Between two steps no sandbox names what the first led to.
        let pin = self.pin(&boot).await?;
        for (index, step) in self.spec.steps.iter().enumerate() {
            let number = index + 1;
            let text = text(step);
            let told = |error: Error| told(&error, number, of, &text);
            let (content, digest) = content(step).await.map_err(told)?;
            key = key.after(step, digest.as_deref());
            let known = if changes_files(step) { self.known(&key, &pin).await.map_err(told)? } else { None };
            let is_cached = known.is_some();
            self.say(BuildLog::Step { number, of, text: text.clone(), is_cached }).await;
            match known {
                Some(layers) => boot.layers = layers,
                None if changes_files(step) => {
                    boot.layers = self.layer(&boot, &key, step, content, &pin).await.map_err(told)?;
                }
                None => {}
            }
            note(&mut boot.defaults, step).map_err(told)?;
        }
        let published = self.publish(boot).await;
        drop(pin);
        published
    }

    /// Holds what it is built over.
    async fn pin(&self, boot: &Boot) -> Result<Arc<Pin>> {
        let (path, layers) = (self.provider.inner().home.clone(), boot.layers.clone());
        aside(move || {
            let home = Home::ensure(&path)?;
            let lock = StoreLock::take(&home, Hold::Shared, BUILD)?;
            let pin = Pin::new(&home, &lock, BUILD)?;
            pin.add(&home, &layers, &lock)?;
            Ok(Arc::new(pin))
        })
        .await
    }

    /// What the step that `key` names led to before.
    async fn known(&self, key: &Key, pin: &Arc<Pin>) -> Result<Option<Vec<LayerId>>> {
        if self.spec.cache == BuildCache::Ignore {
            return Ok(None);
        }
        let (path, key, pin) = (self.provider.inner().home.clone(), key.clone(), Arc::clone(pin));
        aside(move || {
            let home = Home::ensure(&path)?;
            let lock = StoreLock::take(&home, Hold::Shared, BUILD)?;
            let known = cache::find(&home, &key)?;
            pin.add(&home, known.as_deref().unwrap_or_default(), &lock)?;
            Ok(known)
        })
        .await
    }

    /// Does a step that changes files, and answers the layers after it.
    async fn layer(
        &self,
        boot: &Boot,
        key: &Key,
        step: &BuildStep,
        content: Option<Content>,
        pin: &Arc<Pin>,
    ) -> Result<Vec<LayerId>> {
        let sandbox = self.sandbox(boot).await?;
        let made = self.layer_of(&sandbox, boot, key, step, content, pin).await;
        self.current.take();
        let destroyed = self.provider.inner().destroy(sandbox_id(&sandbox)).await;
        let layers = made?;
        destroyed?;
        Ok(layers)
    }

    async fn layer_of(
        &self,
        sandbox: &LocalSandbox,
        boot: &Boot,
        key: &Key,
        step: &BuildStep,
        content: Option<Content>,
        pin: &Arc<Pin>,
    ) -> Result<Vec<LayerId>> {
        self.perform(sandbox, &boot.defaults, step, content).await?;
        let (key, pin) = (key.clone(), Arc::clone(pin));
        let finish = move |home: &Home, captured: Captured<'_>| {
            // Nothing is removed until what names the layer stands.
            let lock = StoreLock::take(home, Hold::Shared, BUILD)?;
            captured.staged.finish(&captured.id, Some(captured.size))?;
            pin.add(home, &captured.boot.layers, &lock)?;
            cache::keep(home, &key, &captured.boot.layers, &lock)?;
            Ok(captured.boot.layers)
        };
        let scope = self.spec.scope.clone();
        capture(self.provider.inner(), sandbox_id(sandbox), Vec::new(), scope, BUILD, finish).await
    }

    async fn publish(&self, boot: Boot) -> Result<Template> {
        let path = self.provider.inner().home.clone();
        let boot = Boot { template: self.spec.template.clone(), ..boot };
        let (id, label) = (self.spec.template.clone(), self.spec.label.clone());
        let base = self.spec.base.as_ref().map_or("host".to_owned(), |base| base.as_str().to_owned());
        let origin = format!("build of {} steps over `{base}`", self.spec.steps.len());
        aside(move || {
            let home = Home::ensure(&path)?;
            let lock = StoreLock::take(&home, Hold::Alone, BUILD)?;
            let mut document = TemplateDocument::new(id, boot, origin);
            document.label = label;
            document.size_bytes = size(&home, &document.layers)?;
            document.publish(&home, &lock)?;
            Ok(crate::templates::public(&home, document))
        })
        .await
    }

    pub(super) async fn say(&self, word: BuildLog) {
        // Where nobody hears, the build is ended from outside.
        let _ = self.say.send(Ok(word)).await;
    }

    pub(super) async fn lines(&self, lines: Vec<String>) {
        for line in lines {
            self.say(BuildLog::Line(line)).await;
        }
    }
}

fn sandbox_id(sandbox: &LocalSandbox) -> &sandbar_core::SandboxId {
    sandbar_core::Sandbox::id(sandbox)
}

/// Does `work` where it may wait.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|cause| fail(ErrorKind::Unexpected, BUILD, format!("it was broken off: {cause}")))?
}

fn changes_files(step: &BuildStep) -> bool {
    matches!(
        step,
        BuildStep::Run(_) | BuildStep::Copy { .. } | BuildStep::CopyFile { .. } | BuildStep::Workdir(_)
    )
}

/// What a step copies, and its digest.
async fn content(step: &BuildStep) -> Result<(Option<Content>, Option<String>)> {
    match step {
        BuildStep::Copy { tar, .. } => {
            let bytes = tar.clone();
            let digest = aside(move || Ok(digest_of(&bytes))).await?;
            Ok((Some(Content::Memory(tar.clone())), Some(digest)))
        }
        BuildStep::CopyFile { tar, .. } => {
            let path = tar.clone();
            let (digest, file) = aside(move || opened(&path)).await?;
            Ok((Some(Content::File(file)), Some(digest)))
        }
        _ => Ok((None, None)),
    }
}

/// What a step sets for what follows, and for sandboxes of the template.
fn note(defaults: &mut TemplateDefaults, step: &BuildStep) -> Result<()> {
    match step {
        BuildStep::Env(env) => {
            defaults.env.extend(env.iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        BuildStep::Workdir(path) => defaults.workdir = path.to_str().map(str::to_owned),
        BuildStep::User(user) => defaults.user = Some(user.clone()),
        BuildStep::Start(command) => defaults.start = words(command)?,
        BuildStep::Ready(command) => defaults.ready = words(command)?,
        BuildStep::Run(_) | BuildStep::Copy { .. } | BuildStep::CopyFile { .. } => {}
        _ => {
            let why = "this version does not know it";
            return Err(
                Error::unsupported(BUILD, "a step of this kind", why).with_backend(crate::config::BACKEND)
            );
        }
    }
    defaults.check(BUILD)
}

fn words(command: &Command) -> Result<Vec<String>> {
    let word = |argument: &std::ffi::OsString| {
        argument
            .to_str()
            .map(str::to_owned)
            .ok_or_else(|| fail(ErrorKind::InvalidInput, BUILD, "an argument is not UTF-8"))
    };
    command.argv().iter().map(word).collect()
}

/// A step for people: what was written, and no value of a variable.
pub(super) fn text(step: &BuildStep) -> String {
    let command = |name: &str, command: &Command| {
        let argv: Vec<_> = command.argv().iter().map(|word| word.to_string_lossy()).collect();
        match argv.as_slice() {
            [shell, option, script] if shell == "/bin/sh" && option == "-c" => format!("{name} {script}"),
            argv => format!("{name} {}", argv.join(" ")),
        }
    };
    let text = match step {
        BuildStep::Run(run) => command("RUN", run),
        BuildStep::Start(start) => command("START", start),
        BuildStep::Ready(ready) => command("READY", ready),
        BuildStep::Copy { to, .. } | BuildStep::CopyFile { to, .. } => format!("COPY to {to}"),
        BuildStep::Env(env) => {
            format!("ENV {}", env.iter().map(|(name, _)| name).collect::<Vec<_>>().join(" "))
        }
        BuildStep::Workdir(path) => format!("WORKDIR {path}"),
        BuildStep::User(user) => format!("USER {user}"),
        _ => "a step of another version".to_owned(),
    };
    let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN).collect();
    if text.chars().count() > SHOWN { format!("{shown}…") } else { shown }
}

/// An error of a step, with its number and what it does.
fn told(error: &Error, number: usize, of: usize, text: &str) -> Error {
    let message = format!("step {number} of {of}, `{text}`: {}", error.message());
    let told = fail(error.kind(), BUILD, message);
    match error.hint() {
        Some(hint) => told.with_hint(hint.to_owned()),
        None => told.with_hint(
            "no template was made or replaced; what the steps before led to is kept for the next build",
        ),
    }
}
