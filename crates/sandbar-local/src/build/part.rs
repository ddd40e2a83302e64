use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use sandbar_core::{
    BuildLog, BuildSpec, BuildStep, Builds, EgressPolicy, Error, ErrorKind, Result, SandboxId,
};
use tokio::sync::mpsc;

use super::run::Run;
use crate::capture::check_label;
use crate::config::BACKEND;
use crate::error::fail;
use crate::home::Home;
use crate::network;
use crate::provider::LocalProvider;
use crate::store::{Boot, TemplateDocument};
use crate::template;

const BUILD: &str = "build";
/// Words of a build that wait for whoever reads them: a step that says more waits, too.
const WAITING: usize = 256;

#[async_trait]
impl Builds for LocalProvider {
    /// Steps run with the limits that sandboxes have by default, `/usr` of the `host` template included: as root of this machine it can be written to, by `root` inside.
    async fn build(&self, spec: BuildSpec) -> Result<BoxStream<'static, Result<BuildLog>>> {
        spec.check().map_err(|error| error.with_backend(BACKEND))?;
        check(&spec)?;
        let inner = self.inner();
        let home = Home::ensure(&inner.home)?;
        let boot = base(&home, &spec)?;
        // Before anything is done.
        inner.executable()?;
        let (say, mut hear) = mpsc::channel(WAITING);
        let current = Current::default();
        let run = Run { provider: self.clone(), spec, boot, say: say.clone(), current: current.clone() };
        let inner = Arc::clone(inner);
        // It ends when the stream is dropped: then nobody hears.
        tokio::spawn(async move {
            let last = tokio::select! {
                biased;
                done = run.run() => Some(done.map(BuildLog::Done)),
                () = say.closed() => None,
            };
            if let Some(id) = current.take() {
                // What can't be destroyed now ends with this process.
                let _ = inner.destroy(&id).await;
            }
            if let Some(last) = last {
                let _ = say.send(last).await;
            }
        });
        let words = stream::poll_fn(move |context| hear.poll_recv(context));
        Ok(words.boxed())
    }
}

/// The sandbox of the step that is being done.
#[derive(Clone, Debug, Default)]
pub(super) struct Current(Arc<Mutex<Option<SandboxId>>>);

impl Current {
    pub(super) fn set(&self, id: SandboxId) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
    }

    pub(super) fn take(&self) -> Option<SandboxId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Refuses what this backend can't build, before anything is done.
fn check(spec: &BuildSpec) -> Result<()> {
    check_label(BUILD, spec.label.as_deref())?;
    if spec.template.as_str() == template::HOST {
        let why = format!("`{}` is the built-in template", template::HOST);
        return Err(fail(ErrorKind::InvalidInput, BUILD, why).with_hint("choose another id"));
    }
    if let Some(policy) = spec.egress.clone().filter(|policy| *policy != EgressPolicy::DenyAll) {
        network::seal(BUILD, policy)?;
    }
    for (index, step) in spec.steps.iter().enumerate() {
        match step {
            BuildStep::Run(command) | BuildStep::Start(command) | BuildStep::Ready(command)
                if command.argv().iter().any(|argument| argument.to_str().is_none()) =>
            {
                let feature = format!("an argument of step {} that is not UTF-8", index + 1);
                return Err(Error::unsupported(BUILD, feature, "the guest's protocol carries text")
                    .with_backend(BACKEND));
            }
            BuildStep::Workdir(path) if path.to_str().is_none() => {
                let feature = format!("a folder of step {} that is not UTF-8", index + 1);
                return Err(Error::unsupported(BUILD, feature, "the guest's protocol carries text")
                    .with_backend(BACKEND));
            }
            BuildStep::CopyFile { tar, .. } if !tar.is_file() => {
                let why = format!("the archive of step {}, `{}`, is no file", index + 1, tar.display());
                return Err(fail(ErrorKind::NotFound, BUILD, why));
            }
            _ => {}
        }
    }
    Ok(())
}

/// What it is built over.
fn base(home: &Home, spec: &BuildSpec) -> Result<Boot> {
    let Some(base) = spec.base.as_ref().filter(|base| base.as_str() != template::HOST) else {
        return Ok(Boot::host());
    };
    let document = TemplateDocument::read(home, base)?.ok_or_else(|| {
        Error::not_found(BUILD, format!("template `{base}`"))
            .with_backend(BACKEND)
            .with_hint("`sandbar template ls` shows those that are there")
    })?;
    // Steps are no sandboxes of the base: what they boot from is their own.
    Ok(Boot { template: template::host_id(), ..document.boot() })
}
