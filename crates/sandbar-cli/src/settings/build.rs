use std::path::{Path, PathBuf};

use sandbar::build::{BuildContext, PreparedBuild};
use sandbar::{BuildCache, BuildFile, BuildSpec, Error, MAX_BUILD_FILE};

use super::input_file::read_bounded;
use super::policy;
use crate::args::TemplateBuildArgs;
use crate::failure::{Failure, Result};

const PARSE: &str = "parse build file";
/// The build file of a context.
const FILE: &str = "Buildfile";

/// `template build`.
#[derive(Debug)]
pub(crate) struct BuildSettings {
    pub(crate) spec: BuildSpec,
    /// What the steps copy is in files of it.
    pub(crate) _prepared: PreparedBuild,
}

impl BuildSettings {
    pub(crate) fn resolve(args: TemplateBuildArgs) -> Result<Self> {
        let TemplateBuildArgs { id, context, file, base, label, no_cache, step_timeout, policy: policy_args } =
            args;
        let context = context.unwrap_or_else(|| PathBuf::from("."));
        let file = file.unwrap_or_else(|| context.join(FILE));
        let file = parsed(&file)?;
        let opened = BuildContext::open(&context).map_err(Failure::usage)?;
        let prepared = PreparedBuild::new(&file, Some(&opened)).map_err(Failure::usage)?;
        let mut spec = BuildSpec::new(id, prepared.steps().to_vec());
        spec.base = base;
        spec.label = label;
        spec.egress = policy::resolve(policy_args)?;
        spec.step_timeout = step_timeout.map(|duration| duration.0);
        if no_cache {
            spec.cache = BuildCache::Ignore;
        }
        spec.check().map_err(Failure::usage)?;
        Ok(Self { spec, _prepared: prepared })
    }
}

fn parsed(file: &Path) -> Result<BuildFile> {
    let shown = file.display();
    let max = u64::try_from(MAX_BUILD_FILE).unwrap_or(u64::MAX);
    let text = String::from_utf8(read_bounded(PARSE, file, max)?)
        .map_err(|_| Failure::usage(Error::invalid(PARSE, format!("`{shown}` is not UTF-8"))))?;
    BuildFile::parse(&text).map_err(|error| {
        let told = Error::invalid(PARSE, format!("`{shown}`: {}", error.message()));
        Failure::usage(match error.hint() {
            Some(hint) => told.with_hint(hint.to_owned()),
            None => told,
        })
    })
}
