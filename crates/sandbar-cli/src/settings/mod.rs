//! What was meant: arguments and environment turned, in one step and before any effect, into what the commands need.

mod build;
mod cp;
mod creation;
mod destination;
mod egress;
mod env_vars;
mod fork;
mod input_file;
mod observation;
mod policy;
mod port;
mod process;
mod provider;
mod serve;
mod stats;

use std::path::{Path, PathBuf};
use std::time::Duration;

use sandbar::{
    Command, CreateOptions, DeadlineAction, EnvVars, Follow, Lifetime, LimitDemand, LogOptions, MainCommand,
    Query, Resources, RestartPolicy, SpawnOptions,
};

use crate::args::{
    CreateArgs, ExecArgs, GlobalArgs, LogsArgs, LsArgs, ProcessArgs, ResourcesArgs, RunArgs, ShellArgs,
};
use crate::env::Environment;
use crate::failure::{Failure, Result};
use crate::value::{CopyIn, CopyOut, EscapeChar, Existing};

pub(crate) use build::BuildSettings;
pub(crate) use cp::CpSettings;
pub(crate) use egress::{EgressSettings, NetworkSettings, Which};
pub(crate) use fork::ForkSettings;
pub(crate) use observation::{AuditSettings, observation};
pub(crate) use port::PortSettings;
pub(crate) use provider::provider_url;
pub(crate) use serve::{ServeSettings, server_folder};
pub(crate) use stats::StatsSettings;

/// What counts beside the arguments of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller<'a> {
    pub(crate) global: &'a GlobalArgs,
    pub(crate) env: &'a Environment,
}

/// `run`.
#[derive(Debug)]
pub(crate) struct RunSettings {
    pub(crate) create: CreateOptions,
    pub(crate) process: ProcessSettings,
    pub(crate) copies_in: Vec<CopyIn>,
    pub(crate) copies_out: Vec<CopyOut>,
    pub(crate) after: After,
}

/// What becomes of the sandbox of a `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Destroy,
    Keep,
}

/// `exec`.
#[derive(Debug)]
pub(crate) struct ExecSettings {
    pub(crate) id: String,
    pub(crate) process: ProcessSettings,
}

/// A command and how to run it.
#[derive(Debug)]
pub(crate) struct ProcessSettings {
    /// The first that the sandbox has is run. Never empty.
    pub(crate) commands: Vec<Command>,
    pub(crate) spawn: SpawnOptions,
    pub(crate) timeout: Option<Duration>,
    pub(crate) terminal: Option<TerminalSettings>,
}

/// How a command uses the caller's terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TerminalSettings {
    pub(crate) escape: EscapeChar,
}

impl RunSettings {
    pub(crate) fn resolve(args: RunArgs, caller: Caller<'_>) -> Result<Self> {
        let RunArgs { process, env, creation, copies_in, copies_out, replace, keep, command } = args;
        let after = if keep { After::Keep } else { After::Destroy };
        let lifetime = if keep { Lifetime::Detached } else { Lifetime::Owned };
        if !keep && creation.on_timeout.as_ref().is_some_and(|action| action.0 != DeadlineAction::Destroy) {
            let what = "`--on-timeout pause` without `--keep`: a sandbox that goes with its command can't be resumed";
            return Err(Failure::usage(sandbar::Error::invalid("run", what).with_hint(
                "add `--keep`, leave `--on-timeout` out, or use `sandbar create` and `sandbar exec`",
            )));
        }
        // The command's environment goes with the command and is not stored: it is where secrets are.
        let create = creation::resolve(creation, EnvVars::new(), lifetime)?;
        let process = process::resolve(process, env_vars::resolve(env)?, command, caller)?;
        let copies_in = copies_in.into_iter().map(absolute_source).collect::<Result<_>>()?;
        let existing = if replace { Existing::Replace } else { Existing::Keep };
        let copies_out = copies_out.into_iter().map(|copy| CopyOut { existing, ..copy });
        let copies_out = copies_out.map(destination::present).collect::<Result<Vec<_>>>()?;
        destination::check_apart(&copies_out)?;
        Ok(Self { create, process, copies_in, copies_out, after })
    }
}

impl ExecSettings {
    pub(crate) fn resolve(args: ExecArgs, caller: Caller<'_>) -> Result<Self> {
        let ExecArgs { id, process, env, command } = args;
        Ok(Self { id, process: process::resolve(process, env_vars::resolve(env)?, command, caller)? })
    }

    /// `shell`.
    pub(crate) fn shell(args: ShellArgs, caller: Caller<'_>) -> Result<Self> {
        let ShellArgs { id, user, workdir, escape_char, env, command } = args;
        let process = ProcessArgs { user, workdir, tty: true, escape_char, ..ProcessArgs::default() };
        Ok(Self { id, process: process::resolve(process, env_vars::resolve(env)?, command, caller)? })
    }
}

/// `create`.
pub(crate) fn create(args: CreateArgs) -> Result<CreateOptions> {
    let CreateArgs { creation, env, restart, user, workdir, command } = args;
    let options = creation::resolve(creation, env_vars::resolve(env)?, Lifetime::Detached)?;
    if command.is_empty() {
        return Ok(options);
    }
    let command = Command::from_argv(command).map_err(Failure::usage)?;
    let restart = restart.map_or(RestartPolicy::No, |policy| policy.0);
    let main = MainCommand { cwd: workdir, user, restart, ..MainCommand::new(command) };
    Ok(options.with_main(main))
}

/// `logs`.
pub(crate) fn log_options(args: &LogsArgs) -> LogOptions {
    LogOptions {
        follow: if args.follow { Follow::Yes } else { Follow::No },
        tail: args.tail.map(|tail| tail.0),
        since: args.since.map(|since| since.0),
    }
}

/// `resources`: the change that is wanted, if one is.
pub(crate) fn resources(args: &ResourcesArgs) -> Result<Option<(Resources, LimitDemand)>> {
    let resources = creation::limited(args.limits);
    match (resources.is_empty(), args.require_enforced_limits) {
        (false, true) => Ok(Some((resources, LimitDemand::Enforced))),
        (false, false) => Ok(Some((resources, LimitDemand::BestEffort))),
        (true, false) => Ok(None),
        (true, true) => {
            let what = "`--require-enforced-limits` without a limit: expected one to change";
            Err(Failure::usage(sandbar::Error::invalid("set resources", what)))
        }
    }
}

/// `ls`.
pub(crate) fn query(args: LsArgs) -> Result<Query> {
    let LsArgs { labels, states, project } = args;
    let query = Query::new()
        .with_labels(creation::labels(labels)?)
        .with_states(states.into_iter().map(|state| state.0));
    Ok(Query { project, ..query })
}

fn absolute_source(copy: CopyIn) -> Result<CopyIn> {
    let source = absolute(&copy.source)?;
    if let Err(error) = source.metadata() {
        let what = format!("`{}` can't be copied: {error}", source.display());
        return Err(Failure::usage(sandbar::Error::invalid("parse --copy", what)));
    }
    Ok(CopyIn { source, ..copy })
}

/// A host path from the current folder, with links left as they are.
fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| {
        let what = format!("`{}` has no absolute path: {error}", path.display());
        Failure::usage(sandbar::Error::invalid("parse path", what))
    })
}
