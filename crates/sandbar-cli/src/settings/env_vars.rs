use std::path::Path;

use sandbar::{EnvVars, Error};

use crate::args::EnvArgs;
use crate::env;
use crate::failure::{Failure, Result};
use crate::settings::input_file::read_bounded;
use crate::value::parse_env_file;

/// Largest environment file in bytes: more than the kernel takes as a whole environment (a quarter of the usual 8 MiB stack).
const MAX_ENV_FILE: u64 = 4 << 20;

/// Files first, in their order; then `-e`, in its order. The later one counts.
pub(super) fn resolve(args: EnvArgs) -> Result<EnvVars> {
    let EnvArgs { env, env_files } = args;
    let mut vars = EnvVars::new();
    for file in &env_files {
        read_file(file, &mut vars)?;
    }
    for arg in env {
        let value = if let Some(value) = arg.value {
            value
        } else {
            // The name first: of one that can't be, nobody need know whether it is set.
            EnvVars::new().insert(&*arg.name, "").map_err(Failure::usage)?;
            callers(&arg.name)?
        };
        vars.insert(arg.name, value).map_err(Failure::usage)?;
    }
    Ok(vars)
}

fn callers(name: &str) -> Result<String> {
    let complain = |why: &str| {
        let error = Error::invalid("parse -e", format!("`{name}` {why}"));
        Failure::usage(error.with_hint(format!("set it, or write `-e {name}=VALUE`")))
    };
    let value = env::callers(name).ok_or_else(|| complain("is not set in this environment"))?;
    value.into_string().map_err(|_| complain("is not UTF-8 in this environment"))
}

fn read_file(file: &Path, vars: &mut EnvVars) -> Result<()> {
    let complain = |why: String| {
        Failure::usage(Error::invalid("read environment file", format!("`{}`: {why}", file.display())))
    };
    let content = read_bounded("read environment file", file, MAX_ENV_FILE)?;
    parse_env_file(&content, vars).map_err(|error| complain(error.to_string()))
}
