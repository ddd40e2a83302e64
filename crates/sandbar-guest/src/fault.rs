//! The one place where the agent's errors become those of the contract.

use sandbar_core::{Error, ErrorKind, Retry, SandboxId};
use sandbar_wire::envd::{Code, RpcError, reason};

use crate::operation::Operation;

/// Longest text of the agent's that is shown, in characters: what is inside may write it.
const MAX_TEXT: usize = 500;

/// What came of starting something in sandbox `id`, with the way out.
pub(crate) fn start(
    id: &SandboxId,
    operation: Operation,
    error: &RpcError,
    process_limit_hint: impl FnOnce() -> String,
) -> Error {
    let refused = rpc(operation, error);
    match error.reason.as_deref() {
        Some(reason::PROCESS_LIMIT) => refused.with_hint(process_limit_hint()),
        Some(reason::UNKNOWN_USER) => {
            refused.with_hint(format!("`sandbar exec {id} -- getent passwd` shows the users that it has"))
        }
        Some(reason::BAD_CWD) => refused.with_hint("name a folder that exists inside, or leave it out"),
        _ => refused,
    }
}

/// An error document of the agent.
pub fn rpc(operation: Operation, error: &RpcError) -> Error {
    let text = readable(&error.message);
    if error.reason.as_deref() == Some(reason::USER_REFUSED) {
        return Error::unsupported(operation.name, "this user", text)
            .with_backend(operation.backend)
            .with_hint("leave the user out, or make the sandbox where user ids are mapped: as root, or with subordinate ids");
    }
    let kind = match error.reason.as_deref() {
        Some(reason::PROGRAM_NOT_FOUND) => ErrorKind::NotFound,
        Some(reason::PROGRAM_NOT_EXECUTABLE) => ErrorKind::PermissionDenied,
        Some(reason::UNKNOWN_USER) => {
            let user = text.strip_prefix("invalid username: ").unwrap_or(&text);
            return operation
                .fail(ErrorKind::InvalidInput, format!("there is no user {user} in the sandbox"));
        }
        Some(reason::BAD_CWD) => ErrorKind::InvalidInput,
        Some(reason::OVERFLOW | reason::SLOW_READER) => ErrorKind::LimitExceeded,
        _ => kind_of(error.code),
    };
    let error = operation.fail(kind, text);
    if kind == ErrorKind::Unavailable { error.with_retry(Retry::OutcomeUnknown) } else { error }
}

fn kind_of(code: Code) -> ErrorKind {
    match code {
        Code::InvalidArgument | Code::OutOfRange => ErrorKind::InvalidInput,
        Code::NotFound => ErrorKind::NotFound,
        Code::AlreadyExists => ErrorKind::AlreadyExists,
        Code::PermissionDenied => ErrorKind::PermissionDenied,
        Code::ResourceExhausted => ErrorKind::LimitExceeded,
        Code::DeadlineExceeded => ErrorKind::Timeout,
        Code::Unauthenticated => ErrorKind::Unauthenticated,
        Code::Unavailable | Code::Aborted | Code::Canceled => ErrorKind::Unavailable,
        Code::Unimplemented => ErrorKind::Protocol,
        Code::FailedPrecondition | Code::Unknown | Code::Internal | Code::DataLoss => ErrorKind::Unexpected,
    }
}

/// The agent said something that is not of the protocol.
pub fn nonsense(operation: Operation, cause: &dyn std::fmt::Display) -> Error {
    operation
        .fail(
            ErrorKind::Protocol,
            format!("the agent's answer makes no sense: {}", readable(&cause.to_string())),
        )
        .with_retry(Retry::OutcomeUnknown)
}

/// A text of the agent's, bounded and without what would drive a terminal.
pub fn readable(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(MAX_TEXT)
        .flat_map(|c| -> Box<dyn Iterator<Item = char>> {
            if c.is_control() { Box::new(c.escape_default()) } else { Box::new(std::iter::once(c)) }
        })
        .collect();
    if shown.is_empty() {
        shown.push_str("the agent gave no reason");
    }
    in_backticks(&shown)
}

/// The agent speaks the words of its protocol, which has values in plain quotes.
fn in_backticks(text: &str) -> String {
    let is_outside = |c: Option<char>| c.is_none_or(|c| c.is_whitespace() || ",.;:()".contains(c));
    let mut shown = String::with_capacity(text.len());
    let (mut before, mut is_open) = (None, false);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let turns = c == '\''
            && if is_open {
                is_outside(rest.peek().copied())
            } else {
                is_outside(before) && rest.clone().any(|c| c == '\'')
            };
        is_open ^= turns;
        shown.push(if turns { '`' } else { c });
        before = Some(c);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Operation = Operation::new("run", "test");

    #[test]
    fn kinds_follow_code_and_reason() {
        let kind = |code, why: Option<&str>| {
            let error = RpcError::new(code, "x");
            rpc(RUN, &why.map_or(error.clone(), |why| error.with_reason(why))).kind()
        };
        assert_eq!(kind(Code::NotFound, None), ErrorKind::NotFound);
        assert_eq!(kind(Code::InvalidArgument, Some(reason::PROGRAM_NOT_FOUND)), ErrorKind::NotFound);
        assert_eq!(
            kind(Code::InvalidArgument, Some(reason::PROGRAM_NOT_EXECUTABLE)),
            ErrorKind::PermissionDenied
        );
        assert_eq!(kind(Code::Unauthenticated, Some(reason::UNKNOWN_USER)), ErrorKind::InvalidInput);
        assert_eq!(kind(Code::PermissionDenied, Some(reason::USER_REFUSED)), ErrorKind::Unsupported);
        assert_eq!(kind(Code::ResourceExhausted, Some(reason::OVERFLOW)), ErrorKind::LimitExceeded);
    }

    #[test]
    fn values_are_in_backticks_and_a_user_who_is_absent_is_called_that() {
        assert_eq!(in_backticks("path '/a b' does not exist"), "path `/a b` does not exist");
        assert_eq!(in_backticks("cwd '/it's': no"), "cwd `/it's`: no");
        assert_eq!(in_backticks("the sandbox's limit, users' own"), "the sandbox's limit, users' own");
        let error =
            RpcError::new(Code::Unauthenticated, "invalid username: 'ann'").with_reason(reason::UNKNOWN_USER);
        let id = SandboxId::new("s0123456789abcdefghj").unwrap();
        let told = start(&id, RUN, &error, String::new);
        assert!(told.message().contains("there is no user `ann`"), "{told}");
        assert!(told.hint().is_some_and(|hint| hint.contains("getent passwd")), "{told}");
    }

    #[test]
    fn what_comes_from_inside_can_not_drive_a_terminal() {
        assert_eq!(readable("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(readable(&"x".repeat(10_000)).len(), MAX_TEXT);
    }
}
