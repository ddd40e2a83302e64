use std::path::PathBuf;

use sandbar::observe::{AuditConfig, AuditLog, Observation, TraceContext};
use sandbar::{Error, ErrorKind, Follow};

use crate::args::{AuditArgs, GlobalArgs};
use crate::env::{Environment, SANDBAR_AUDIT};
use crate::failure::{Failure, Result};
use crate::value::{AuditArg, AuditFile};

/// Where root's record is by default: with the other logs.
const ROOT_FILE: &str = "/var/log/sandbar/audit.jsonl";

/// `audit`.
#[derive(Debug)]
pub(crate) struct AuditSettings {
    pub(crate) path: PathBuf,
    pub(crate) follow: Follow,
    pub(crate) id: Option<String>,
}

impl AuditSettings {
    pub(crate) fn resolve(args: AuditArgs, global: &GlobalArgs, env: &Environment) -> Result<Self> {
        let AuditArgs { file, follow, id } = args;
        let file = match file {
            Some(file) => file,
            None => wanted(global, env)?.map_or(AuditFile::Default, |arg| arg.file),
        };
        let follow = if follow { Follow::Yes } else { Follow::No };
        Ok(Self { path: path(file, env)?, follow, id })
    }
}

/// What is to be told of this invocation: nothing, unless a record, a trace or spans are asked for.
pub(crate) fn observation(global: &GlobalArgs, env: &Environment) -> Result<Option<Observation>> {
    let traceparent = global.traceparent.as_deref().or(env.traceparent.as_deref());
    // What belongs to the environment's own is not to be taken for the state of another.
    let tracestate = env.tracestate.as_deref().filter(|_| global.traceparent.is_none());
    let audit = wanted(global, env)?;
    if audit.is_none() && traceparent.is_none() && !env.exports_spans {
        return Ok(None);
    }
    // What is not a valid one begins a new trace, by the rules of the W3C.
    let mut observation = Observation::new().with_trace(TraceContext::from_caller(traceparent, tracestate));
    if let Some(actor) = &env.actor {
        observation = observation.with_actor(actor);
    }
    if let Some(AuditArg { file, mode, max_bytes, keep }) = audit {
        let mut config = AuditConfig::new(path(file, env)?).with_mode(mode);
        config = max_bytes.into_iter().fold(config, AuditConfig::with_max_bytes);
        config = keep.into_iter().fold(config, AuditConfig::with_keep);
        observation = observation.with_audit(AuditLog::open(config).map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => Failure::usage(error),
            _ => error.into(),
        })?);
    }
    Ok(Some(observation))
}

/// The record that was asked for: typed, or else in the environment.
fn wanted(global: &GlobalArgs, env: &Environment) -> Result<Option<AuditArg>> {
    match (&global.audit, &env.audit) {
        (Some(arg), _) => Ok(Some(arg.clone())),
        (None, Some(text)) => text.parse().map(Some).map_err(|why| {
            let message = format!("`{SANDBAR_AUDIT}` is not valid: {why}");
            Failure::usage(Error::invalid("parse environment", message))
        }),
        (None, None) => Ok(None),
    }
}

fn path(file: AuditFile, env: &Environment) -> Result<PathBuf> {
    match file {
        AuditFile::Path(path) => super::absolute(&path),
        AuditFile::Default if rustix::process::geteuid().is_root() => Ok(ROOT_FILE.into()),
        AuditFile::Default => {
            let state =
                env.state_home.clone().or_else(|| env.home.as_ref().map(|home| home.join(".local/state")));
            let missing = || {
                let message = "there is no default place for the audit record: `HOME` is not set";
                Failure::usage(Error::invalid("audit", message).with_hint("name a file instead of `default`"))
            };
            Ok(state.ok_or_else(missing)?.join("sandbar/audit.jsonl"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn global(audit: Option<&str>, traceparent: Option<&str>) -> GlobalArgs {
        GlobalArgs {
            provider: None,
            json: false,
            verbose: false,
            audit: audit.map(|text| text.parse().unwrap()),
            traceparent: traceparent.map(Into::into),
        }
    }

    #[test]
    fn nothing_is_told_unless_it_is_asked_for() {
        assert!(observation(&global(None, None), &Environment::default()).unwrap().is_none());
        assert!(observation(&global(None, Some("nonsense")), &Environment::default()).unwrap().is_some());
    }

    #[test]
    fn typed_beats_environment_and_both_are_checked() {
        let env = Environment { audit: Some("/e,best-effort".into()), ..Environment::default() };
        let file = |arg: Option<AuditArg>| arg.unwrap().file;
        assert_eq!(file(wanted(&global(None, None), &env).unwrap()), AuditFile::Path("/e".into()));
        assert_eq!(file(wanted(&global(Some("/t"), None), &env).unwrap()), AuditFile::Path("/t".into()));
        let env = Environment { audit: Some("/e,often".into()), ..Environment::default() };
        let error = wanted(&global(None, None), &env).unwrap_err().error.unwrap();
        assert!(error.to_string().contains("SANDBAR_AUDIT"), "{error}");
    }

    #[test]
    fn the_default_is_the_folder_for_states() {
        let env =
            Environment { state_home: Some("/s".into()), home: Some("/h".into()), ..Environment::default() };
        let wanted = if rustix::process::geteuid().is_root() { ROOT_FILE } else { "/s/sandbar/audit.jsonl" };
        assert_eq!(path(AuditFile::Default, &env).unwrap(), PathBuf::from(wanted));
    }
}
