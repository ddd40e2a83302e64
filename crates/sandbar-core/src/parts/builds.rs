use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

use crate::{Command, EgressPolicy, EnvVars, Error, GuestPath, Result, Template, TemplateId, UserName};

/// Most steps of one build: what the field's own images have is far below, and each step that changes files is a layer until layers are merged.
pub const MAX_BUILD_STEPS: usize = 256;

/// Longest scope of a build's cache, in bytes: a digest in hexadecimal with a word before it.
pub const MAX_BUILD_SCOPE: usize = 128;

/// Building templates from steps.
#[async_trait]
pub trait Builds: Send + Sync {
    /// Builds a template; the stream ends with [`BuildLog::Done`], or with the error of the step that failed.
    ///
    /// # Behavior
    /// - What can't be built is refused before the first step: [`BuildSpec::check`], and a base that does not exist.
    /// - Each step sees the files of those before it, and nothing else of them: what they left running is gone.
    /// - A step that fails ends the build. Its error names the step and how it ended, with its last lines; no template is made or replaced.
    /// - A step whose result is known (the same steps over the same base, the same content copied) is not done again, unless the cache is not to be used.
    /// - Results are known within a scope: a build finds none of another scope, or of none where it has one, and changes none of them.
    /// - Dropping the stream ends the build, and nothing of it is left but what the cache keeps.
    async fn build(&self, spec: BuildSpec) -> Result<BoxStream<'static, Result<BuildLog>>>;
}

/// How to build a template.
#[derive(Clone, Debug)]
pub struct BuildSpec {
    /// As what. One that is there is replaced at the end.
    pub template: TemplateId,
    /// From what; the backend's own default if absent.
    pub base: Option<TemplateId>,
    /// The steps.
    pub steps: Vec<BuildStep>,
    /// What commands of steps may reach; nothing if absent.
    pub egress: Option<EgressPolicy>,
    /// A word on it.
    pub label: Option<String>,
    /// Whether results of earlier builds will do.
    pub cache: BuildCache,
    /// Among whose results is looked, and who finds this build's: those with the same scope, or with none. Where one backend serves several who must not
    /// learn of each other, each has a scope of its own.
    pub scope: Option<String>,
    /// How long each step may take; the backend's own bound if absent.
    pub step_timeout: Option<Duration>,
}

/// Whether results of earlier builds will do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BuildCache {
    /// A step whose result is known is not done again.
    #[default]
    Use,
    /// Each step is done.
    Ignore,
}

/// One step.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum BuildStep {
    /// Runs a command, as the user and in the folder that were set last. It has to exit with 0.
    Run(Command),
    /// Unpacks a tar below a folder, which is made if it is not there; what it brings belongs to the user that was set last.
    Copy {
        /// The tar.
        tar: Bytes,
        /// Where to.
        to: GuestPath,
    },
    /// The same, of a tar file on the caller's machine that is read as a stream.
    CopyFile {
        /// The tar.
        tar: PathBuf,
        /// Where to.
        to: GuestPath,
    },
    /// Sets variables for what follows and for sandboxes made from it. They stand in the template: not for secrets.
    Env(EnvVars),
    /// Sets the working folder for what follows and for sandboxes made from it; it is made if it is not there.
    Workdir(GuestPath),
    /// Sets the user for what follows and for sandboxes made from it.
    User(UserName),
    /// Sets the main command of sandboxes made from it that are given none.
    Start(Command),
    /// Sets the command that succeeds once the main command is ready.
    Ready(Command),
}

/// A word from a build.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum BuildLog {
    /// A step begins; the lines that follow are its.
    Step {
        /// Its number, from 1.
        number: usize,
        /// How many there are.
        of: usize,
        /// What it does, for people: without values of variables.
        text: String,
        /// Whether its result was known, so that there is nothing to do.
        is_cached: bool,
    },
    /// A line of output.
    Line(String),
    /// Done.
    Done(Template),
}

impl BuildSpec {
    /// A build of `template` from `steps`, over the backend's default.
    pub fn new(template: TemplateId, steps: Vec<BuildStep>) -> Self {
        Self {
            template,
            base: None,
            steps,
            egress: None,
            label: None,
            cache: BuildCache::Use,
            scope: None,
            step_timeout: None,
        }
    }

    /// Sets what it is built from.
    pub fn with_base(mut self, base: TemplateId) -> Self {
        self.base = Some(base);
        self
    }

    /// Sets what commands of steps may reach.
    pub fn with_egress(mut self, egress: EgressPolicy) -> Self {
        self.egress = Some(egress);
        self
    }

    /// Sets a word on it.
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets whether results of earlier builds will do.
    pub fn with_cache(mut self, cache: BuildCache) -> Self {
        self.cache = cache;
        self
    }

    /// Sets among whose results of earlier builds is looked.
    pub fn with_scope(mut self, scope: impl Into<String>) -> Self {
        self.scope = Some(scope.into());
        self
    }

    /// Sets how long each step may take.
    pub fn with_step_timeout(mut self, timeout: Duration) -> Self {
        self.step_timeout = Some(timeout);
        self
    }

    /// Refuses what no backend could build: no step at all, more than [`MAX_BUILD_STEPS`], an empty command, a time of zero, a scope that says nothing or is longer than
    /// [`MAX_BUILD_SCOPE`].
    pub fn check(&self) -> Result<()> {
        let complain = |why: String| Err(Error::invalid("build", why));
        if self.steps.is_empty() {
            return complain("there are no steps: expected at least one".into());
        }
        if self.steps.len() > MAX_BUILD_STEPS {
            return complain(format!("{} steps: expected at most {MAX_BUILD_STEPS}", self.steps.len()));
        }
        if self.step_timeout == Some(Duration::ZERO) {
            return complain("a step can't take 0: expected a positive duration".into());
        }
        if let Some(scope) = &self.scope {
            let length = scope.len();
            if length == 0 || length > MAX_BUILD_SCOPE {
                let expected = format!("expected 1 to {MAX_BUILD_SCOPE}");
                return complain(format!("the scope of the cache has {length} bytes: {expected}"));
            }
        }
        for step in &self.steps {
            match step {
                BuildStep::Run(command) | BuildStep::Start(command) | BuildStep::Ready(command) => {
                    command.check()?;
                }
                BuildStep::Copy { .. }
                | BuildStep::CopyFile { .. }
                | BuildStep::Env(_)
                | BuildStep::Workdir(_)
                | BuildStep::User(_) => {}
            }
        }
        Ok(())
    }
}
