//! From a build file and the folder beside it to the steps of a build.
//!
//! ```no_run
//! use sandbar::build::{BuildContext, PreparedBuild};
//! use sandbar::{BuildFile, BuildSpec, TemplateId};
//!
//! # fn main() -> sandbar::Result<()> {
//! let file = BuildFile::parse("COPY package.json ./\nRUN npm ci\n")?;
//! let prepared = PreparedBuild::new(&file, Some(&BuildContext::open("app")?))?;
//! let spec = BuildSpec::new(TemplateId::new("app")?, prepared.steps().to_vec());
//! # Ok(())
//! # }
//! ```

mod context;
mod ignore;
mod pack;

#[cfg(test)]
mod tests;

use std::io::Write as _;

pub use context::BuildContext;
pub use ignore::{IGNORE_FILE, MAX_IGNORE_FILE};
pub use pack::{MAX_CONTEXT_BYTES, MAX_CONTEXT_ENTRIES};

use crate::{BuildFile, BuildInstruction, BuildStep, Error, ErrorKind, Result};

const PREPARE: &str = "prepare build";

/// The steps of a build file, with what they copy in archives of its own: these go with it, so it is to be kept until the build is done.
#[derive(Debug)]
pub struct PreparedBuild {
    steps: Vec<BuildStep>,
    _archives: tempfile::TempDir,
}

impl PreparedBuild {
    /// Packs what the instructions copy from `context`. The times of files are left out, so that the same content is known again.
    pub fn new(file: &BuildFile, context: Option<&BuildContext>) -> Result<Self> {
        let archives = tempfile::tempdir().map_err(|cause| io("a folder for archives", cause))?;
        let mut steps = Vec::with_capacity(file.lines().len());
        for line in file.lines() {
            let step = match &line.instruction {
                BuildInstruction::Copy { sources, to, into } => {
                    let context = context.ok_or_else(|| {
                        Error::invalid(
                            PREPARE,
                            format!("line {}: it copies, and there is no context", line.line),
                        )
                        .with_hint("name the folder that its sources lie in")
                    })?;
                    let place = archives.path().join(format!("{}.tar", line.line));
                    let mut archive =
                        std::fs::File::create_new(&place).map_err(|cause| io("an archive", cause))?;
                    let below = pack::pack(context, sources, to, *into, &mut archive)
                        .map_err(|error| at_line(&error, line.line))?;
                    archive.flush().map_err(|cause| io("an archive", cause))?;
                    BuildStep::CopyFile { tar: place, to: below }
                }
                BuildInstruction::Run(command) => BuildStep::Run(command.clone()),
                BuildInstruction::Env(env) => BuildStep::Env(env.clone()),
                BuildInstruction::Workdir(path) => BuildStep::Workdir(path.clone()),
                BuildInstruction::User(user) => BuildStep::User(user.clone()),
                BuildInstruction::Start(command) => BuildStep::Start(command.clone()),
                BuildInstruction::Ready(command) => BuildStep::Ready(command.clone()),
                _ => {
                    let why = "this version does not know the instruction";
                    return Err(Error::unsupported(PREPARE, format!("line {}", line.line), why));
                }
            };
            steps.push(step);
        }
        Ok(Self { steps, _archives: archives })
    }

    /// The steps.
    pub fn steps(&self) -> &[BuildStep] {
        &self.steps
    }
}

fn at_line(error: &Error, line: usize) -> Error {
    let told = Error::new(error.kind(), PREPARE, format!("line {line}: {}", error.message()));
    match error.hint() {
        Some(hint) => told.with_hint(hint.to_owned()),
        None => told,
    }
}

fn io(what: &str, cause: std::io::Error) -> Error {
    let kind = match cause.kind() {
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        std::io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::LimitExceeded,
        _ => ErrorKind::Unexpected,
    };
    Error::new(kind, PREPARE, format!("{what}: {cause}")).with_source(cause)
}
