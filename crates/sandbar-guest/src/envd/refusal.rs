//! What the agent's refusals mean, which it tells by words alone.

use sandbar_core::{Error, ErrorKind, UserName};
use sandbar_wire::envd::{Code, RpcError, reason};

use super::{EnvdClient, EnvdVersion};
use crate::operation::Operation;
use crate::start::{Followed, Wish};

/// The user that a template has where the agent knows no default of its own.
const USER: &str = "user";
/// Runs `$@` with nothing to read: what an agent of old can't be told.
const WITHOUT_INPUT: &str = r#"exec "$@" </dev/null"#;

impl EnvdClient {
    /// Starts a process, with what this version of the agent needs to be told. The inner error is its refusal.
    pub(super) async fn begin(
        &self,
        wish: Wish<'_>,
        operation: Operation,
    ) -> sandbar_core::Result<std::result::Result<Followed, RpcError>> {
        let version = self.version(operation.name).await?;
        let default = UserName::new(USER)?;
        let user = wish.user.or_else(|| (!version.has_default_user()).then_some(&default));
        let wrapped = needs_wrap(&wish, version).then(|| {
            sandbar_core::Command::shell(WITHOUT_INPUT).arg("sandbar").args(wish.command.argv().to_vec())
        });
        let command = wrapped.as_ref().unwrap_or(wish.command);
        wish.command.check().map_err(|error| error.with_backend(operation.backend))?;
        let started = self.guest.start(Wish { command, user, ..wish }, operation).await?;
        Ok(started.map_err(with_reason))
    }

    /// What came of starting something, with the way out.
    pub(super) fn refused_start(&self, operation: Operation, error: &RpcError) -> Error {
        self.guest.start_fault(operation, error)
    }
}

/// Refuses what this version of the agent has not got.
pub(super) fn too_old(operation: Operation, feature: &str, version: EnvdVersion) -> Error {
    let why = format!("the sandbox' agent is of version {version}");
    Error::unsupported(operation.name, feature, why)
        .with_backend(operation.backend)
        .with_hint("build its template again, so that it gets a newer agent")
}

fn needs_wrap(wish: &Wish<'_>, version: EnvdVersion) -> bool {
    !wish.stdin && wish.pty.is_none() && !version.closes_stdin_at_start()
}

/// The reason in the words of a refused `Start`: those of Go's `os/exec` and of the agent itself.
fn with_reason(error: RpcError) -> RpcError {
    if error.reason.is_some() {
        return error;
    }
    let text = error.message.as_str();
    let found = match error.code {
        Code::InvalidArgument | Code::NotFound | Code::Unknown | Code::Internal | Code::PermissionDenied => {
            if text.contains("cwd '") && text.contains("does not exist") {
                Some(reason::BAD_CWD)
            } else if text.contains("executable file not found") {
                Some(reason::PROGRAM_NOT_FOUND)
            } else if !text.contains("exec") {
                None
            } else if text.ends_with("no such file or directory") {
                Some(reason::PROGRAM_NOT_FOUND)
            } else if ["permission denied", "exec format error", "is a directory"]
                .iter()
                .any(|end| text.ends_with(end))
            {
                Some(reason::PROGRAM_NOT_EXECUTABLE)
            } else if text.ends_with("resource temporarily unavailable") {
                Some(reason::PROCESS_LIMIT)
            } else {
                None
            }
        }
        Code::Unauthenticated if text.contains("invalid username") => Some(reason::UNKNOWN_USER),
        _ => None,
    };
    match found {
        Some(found) => error.with_reason(found),
        None => error,
    }
}

/// Whether the sandbox has no such user, or none that may be used.
pub(super) fn is_about_the_user(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::InvalidInput => error.message().starts_with("there is no user"),
        ErrorKind::Unsupported => error.feature() == Some("this user"),
        ErrorKind::Unauthenticated => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_reasons() {
        let told = |code, text: &str| with_reason(RpcError::new(code, text)).reason;
        let bad = Code::InvalidArgument;
        for (text, expected) in [
            (
                r#"error starting process: exec: "no-such": executable file not found in $PATH"#,
                reason::PROGRAM_NOT_FOUND,
            ),
            (
                "error starting process: fork/exec /no/such: no such file or directory",
                reason::PROGRAM_NOT_FOUND,
            ),
            ("fork/exec /etc/passwd: permission denied", reason::PROGRAM_NOT_EXECUTABLE),
            ("fork/exec /tmp/x: exec format error", reason::PROGRAM_NOT_EXECUTABLE),
            ("fork/exec /bin/true: resource temporarily unavailable", reason::PROCESS_LIMIT),
            ("cwd '/no/such' does not exist", reason::BAD_CWD),
        ] {
            assert_eq!(told(bad, text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(
            told(Code::Unauthenticated, "invalid username: 'ann'").as_deref(),
            Some(reason::UNKNOWN_USER)
        );
        assert_eq!(
            told(Code::Unauthenticated, "unauthorized access, please provide a valid access token"),
            None
        );
        assert_eq!(told(bad, "permission denied"), None);
        let kept = RpcError::new(bad, "cwd '/x' does not exist").with_reason(reason::PROCESS_LIMIT);
        assert_eq!(with_reason(kept).reason.as_deref(), Some(reason::PROCESS_LIMIT));
    }

    #[test]
    fn an_old_agent_gets_a_shell_that_closes_the_input() {
        let env = sandbar_core::EnvVars::new();
        let command = sandbar_core::Command::new("cat");
        let wish = |stdin| Wish {
            command: &command,
            cwd: None,
            env: &env,
            user: None,
            timeout: None,
            stdin,
            pty: None,
            tag: None,
        };
        let (old, new) = ("0.2.9".parse().unwrap(), "0.3.0".parse().unwrap());
        assert!(
            needs_wrap(&wish(false), old) && !needs_wrap(&wish(true), old) && !needs_wrap(&wish(false), new)
        );
    }
}
