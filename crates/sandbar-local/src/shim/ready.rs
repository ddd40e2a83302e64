//! Waiting until what a sandbox is for is ready: its template names a command that succeeds then.

use std::time::Duration;

use sandbar_core::{Error, ErrorKind, ExitStatus, Result};
use sandbar_guest::{Operation, refused};
use tokio::time::{Instant, sleep};

use super::main_command;
use super::protocol::ReadyOrder;
use super::shared::Shared;
use crate::client::{Once, once};
use crate::config::BACKEND;
use crate::error::fail;

/// Between two attempts: soon enough for somebody who waits, seldom enough to take nothing from what is starting.
const EVERY: Duration = Duration::from_millis(200);
/// Longest text of the command in an error, in characters.
const SHOWN: usize = 200;

/// Runs the command until it succeeds. It is not waited for when the main command failed for good, or when its time is over.
pub(super) async fn wait(shared: &Shared, order: &ReadyOrder, operation: &'static str) -> Result<()> {
    let bound = Duration::from_millis(order.within_ms);
    let end = Instant::now() + bound;
    let name = shown(&order.argv);
    let mut last = None;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let why = format!("`{name}` did not succeed within {} s", bound.as_secs_f64());
            return Err(never(shared, operation, ErrorKind::Timeout, &why, last.as_ref()).await);
        }
        match once(&shared.folder, &order.argv, left, operation).await {
            Ok(Ok(Once { status: Some(status), .. })) if status.is_success() => return Ok(()),
            Ok(Ok(attempt)) => last = Some(attempt),
            Ok(Err(refusal)) => {
                let error = refused(Operation::new(operation, BACKEND), &refusal);
                let why = format!("`{name}` can't be run: {}", error.message());
                return Err(never(shared, operation, error.kind(), &why, None).await);
            }
            Err(error) => {
                return Err(never(
                    shared,
                    operation,
                    error.kind(),
                    &format!("`{name}`: {}", error.message()),
                    None,
                )
                .await);
            }
        }
        if let Some(how) = main_command::failed(shared).await {
            let why = format!("the main command ended with {how} before `{name}` succeeded");
            return Err(never(shared, operation, ErrorKind::Unexpected, &why, last.as_ref()).await);
        }
        sleep(EVERY).await;
    }
}

/// The error, with the last that was heard of both commands: nothing else of them will be left.
async fn never(
    shared: &Shared,
    operation: &'static str,
    kind: ErrorKind,
    why: &str,
    last: Option<&Once>,
) -> Error {
    let mut parts = vec![format!("it is not ready: {why}")];
    if let Some(Once { status, said }) = last {
        let said = if said.is_empty() { String::new() } else { format!(" and said: {said}") };
        let how = match status {
            Some(ExitStatus::Unknown) => "nobody knows how it last ended".to_owned(),
            Some(status) => format!("it last ended with {status}"),
            None => "it was still running".to_owned(),
        };
        parts.push(how + &said);
    }
    if let Some(words) = main_command::last_words(shared).await {
        parts.push(format!("the last of the main command: {words}"));
    }
    fail(kind, operation, parts.join("; "))
        .with_hint("`sandbar template show` has the template's START and READY; with a main command of its own a sandbox waits for none")
}

/// The command for people: a shell's line as it was written.
fn shown(argv: &[String]) -> String {
    let text = match argv {
        [shell, option, script] if shell == "/bin/sh" && option == "-c" => script.clone(),
        argv => argv.join(" "),
    };
    let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN).collect();
    if text.chars().count() > SHOWN { format!("{shown}…") } else { shown }
}
