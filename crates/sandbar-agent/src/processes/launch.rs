use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::path::Path;

use sandbar_engine::process::{Spawn, Stdio};
use sandbar_wire::envd::{Code, RpcError, reason};

use crate::config::DEFAULT_PATH;
use crate::paths;
use crate::state::State;
use crate::users::User;

/// A command as somebody asked for it.
pub(crate) struct Command<'a> {
    pub(crate) program: &'a str,
    pub(crate) args: &'a [String],
    pub(crate) env: &'a BTreeMap<String, String>,
    /// Absent or empty means the default working folder.
    pub(crate) cwd: Option<&'a str>,
    pub(crate) stdio: Stdio,
}

impl Command<'_> {
    /// Everything the engine needs to start it as that user.
    pub(crate) fn prepare(self, state: &State, user: &User) -> Result<Spawn, RpcError> {
        check_names(self.env)?;
        let env = command_env(state, user, self.env);
        let workdir = state.defaults.borrow().workdir.clone();
        let asked = self.cwd.filter(|cwd| !cwd.is_empty());
        let cwd = paths::resolve(Path::new(asked.unwrap_or_default()), user, workdir.as_deref());
        match std::fs::metadata(&cwd) {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => return Err(bad_cwd(&format!("cwd '{}' is not a directory", cwd.display()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(bad_cwd(&format!("cwd '{}' does not exist", cwd.display())));
            }
            // The new process has its own rights and finds out by itself.
            Err(_) => {}
        }
        let path = env.get("PATH").map_or(DEFAULT_PATH, String::as_str);
        let (identity, capabilities) = state.rights(user);
        Ok(Spawn {
            programs: programs(self.program, path)?,
            argv: std::iter::once(self.program)
                .chain(self.args.iter().map(String::as_str))
                .map(c_string)
                .collect::<Result<_, _>>()?,
            env: env
                .iter()
                .map(|(name, value)| c_string(&format!("{name}={value}")))
                .collect::<Result<_, _>>()?,
            cwd: Some(c_string(&cwd.to_string_lossy())?),
            identity,
            capabilities,
            stdio: self.stdio,
            more_descriptors: Vec::new(),
            rlimits: state.config.rlimits.clone(),
            oom_score: state.oom_score.clone(),
        })
    }
}

fn bad_cwd(text: &str) -> RpcError {
    RpcError::new(Code::InvalidArgument, text).with_reason(reason::BAD_CWD)
}

/// A variable that can't be set is refused, and not left out: somebody relies on it.
fn check_names(env: &BTreeMap<String, String>) -> Result<(), RpcError> {
    match env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        None => Ok(()),
        Some(name) => {
            let text = format!(
                "'{}' is no name of a variable: expected text without '=' and zero bytes",
                name.escape_debug()
            );
            Err(RpcError::new(Code::InvalidArgument, text))
        }
    }
}

/// The environment of a command: nothing is inherited from the agent.
pub(crate) fn command_env(
    state: &State,
    user: &User,
    own: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut env = BTreeMap::from([
        ("PATH".to_owned(), DEFAULT_PATH.to_owned()),
        ("HOME".to_owned(), user.home.clone()),
        ("USER".to_owned(), user.name.clone()),
        ("LOGNAME".to_owned(), user.name.clone()),
    ]);
    env.extend(state.sandbox_env());
    env.extend(own.iter().map(|(name, value)| (name.clone(), value.clone())));
    env.retain(|name, _| !name.is_empty() && !name.contains('='));
    env
}

/// Where to look for a program: its own path, or each folder of `PATH`.
pub(crate) fn programs(program: &str, path: &str) -> Result<Vec<CString>, RpcError> {
    if program.is_empty() {
        return Err(RpcError::new(Code::InvalidArgument, "no program was named"));
    }
    if program.contains('/') {
        return Ok(vec![c_string(program)?]);
    }
    path.split(':')
        .map(|folder| c_string(&format!("{}/{program}", if folder.is_empty() { "." } else { folder })))
        .collect()
}

fn c_string(text: &str) -> Result<CString, RpcError> {
    CString::new(text).map_err(|_| RpcError::new(Code::InvalidArgument, "an argument has a zero byte"))
}
