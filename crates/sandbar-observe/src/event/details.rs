//! The details of operations, each within bounds and without what must not stand in a record.

use std::os::unix::ffi::OsStrExt;

use sandbar_core::{Command, EnvVars, ExitStatus, GuestPath, KillCause};
use serde_json::{Map, Value, json};

use super::bounded::bounded;

/// Longest path shown, in bytes; the kernel takes four times that, and nobody reads it.
const MAX_PATH: usize = 1024;
/// Longest argument shown, in bytes.
const MAX_ARGUMENT: usize = 1024;
/// Bytes of all arguments together, so that a line stays within its bound even where each byte has to be escaped.
const MAX_ARGUMENTS: usize = 4096;
/// Arguments shown; each costs some bytes of its own.
const MAX_COUNT: usize = 128;
/// Names of variables shown.
const MAX_NAMES: usize = 64;
/// Longest word of any other kind.
const MAX_WORD: usize = 256;

/// A path inside.
pub fn path(path: &GuestPath) -> Value {
    bounded(path.as_bytes(), MAX_PATH)
}

/// A name or another short text.
pub fn word(text: &str) -> Value {
    bounded(text.as_bytes(), MAX_WORD)
}

/// A command: `argv` as far as it fits, and `argc`, how many there are.
pub fn command(command: &Command, detail: &mut Map<String, Value>) {
    let mut left = MAX_ARGUMENTS;
    let mut shown = Vec::new();
    for argument in command.argv().iter().take(MAX_COUNT) {
        if left == 0 {
            break;
        }
        let bytes = argument.as_bytes();
        shown.push(bounded(bytes, MAX_ARGUMENT.min(left)));
        left -= bytes.len().min(MAX_ARGUMENT).min(left);
    }
    detail.insert("argv".into(), shown.into());
    detail.insert("argc".into(), command.argv().len().into());
}

/// The names of variables; their values stay out.
pub fn env_names(env: &EnvVars) -> Value {
    let names: Vec<_> = env.iter().take(MAX_NAMES).map(|(name, _)| word(name)).collect();
    if env.iter().count() > MAX_NAMES {
        json!({"names": names, "count": env.iter().count(), "cut": true})
    } else {
        names.into()
    }
}

/// How a process ended: `status` (`exited`, `signaled`, `unknown`), `code` or `signal`, and the limit that ended it.
pub fn exit(status: ExitStatus, cause: Option<KillCause>, detail: &mut Map<String, Value>) {
    let (word, number) = match status {
        ExitStatus::Code(code) => ("exited", Some(("code", code))),
        ExitStatus::Signal(signal) => ("signaled", Some(("signal", signal))),
        ExitStatus::Unknown => ("unknown", None),
    };
    detail.insert("status".into(), word.into());
    if let Some((key, number)) = number {
        detail.insert(key.into(), number.into());
    }
    if let Some(cause) = cause {
        detail.insert("cause".into(), json!(cause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(command_: &Command) -> Map<String, Value> {
        let mut detail = Map::new();
        command(command_, &mut detail);
        detail
    }

    #[test]
    fn arguments_are_bounded_one_by_one_and_together() {
        let long = argv(&Command::new("cat").arg("x".repeat(5000)));
        assert_eq!(long["argv"][1]["bytes"], 5000);
        assert_eq!(long["argv"][1]["text"].as_str().unwrap().len(), MAX_ARGUMENT);
        let many = argv(&Command::new("cat").args(vec!["y".repeat(1000); 10_000]));
        assert_eq!(many["argc"], 10_001);
        let text = serde_json::to_string(&many).unwrap();
        assert!(text.len() < 2 * MAX_ARGUMENTS, "{}", text.len());
        assert_eq!(
            argv(&Command::new("a").args(vec![""; 1000]))["argv"].as_array().unwrap().len(),
            MAX_COUNT
        );
    }

    #[test]
    fn of_variables_only_names_are_told() {
        let env = EnvVars::new().with("TOKEN", "canary").unwrap();
        assert_eq!(env_names(&env), json!(["TOKEN"]));
    }
}
