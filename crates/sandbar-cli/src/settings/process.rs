use std::ffi::OsString;

use sandbar::{Command, EnvVars, SpawnOptions, StdinMode};

use crate::args::ProcessArgs;
use crate::failure::{Failure, Result};
use crate::settings::ProcessSettings;

pub(super) fn resolve(args: ProcessArgs, env: EnvVars, words: Vec<OsString>) -> Result<ProcessSettings> {
    let ProcessArgs { user, workdir, interactive, timeout } = args;
    let command = Command::from_argv(words).map_err(Failure::usage)?;
    let timeout = timeout.map(|duration| duration.0);
    let spawn = SpawnOptions {
        cwd: workdir,
        env,
        user,
        timeout,
        stdin: if interactive { StdinMode::Open } else { StdinMode::Null },
        ..SpawnOptions::new()
    };
    Ok(ProcessSettings { command, spawn, timeout })
}
