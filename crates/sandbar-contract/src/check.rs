use std::future::Future;
use std::time::{Duration, Instant};

use sandbar_core::{
    Capabilities, Command, Error, ErrorKind, GuestPath, Output, RunOptions, Sandbox, SandboxProvider,
};

/// Longest wait for something that has to happen by itself.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Time between two looks at it.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Longest time that a case's own commands may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// What a case found.
pub(crate) type Checked<T = ()> = Result<T, Verdict>;

/// Why a case did not pass.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The sentence does not hold.
    Failed(String),
    /// It can't be tested here.
    Skipped(String),
}

impl From<Error> for Verdict {
    fn from(error: Error) -> Self {
        Self::Failed(format!("unexpected error of kind {:?}: {error}", error.kind()))
    }
}

/// Fails the case.
pub(crate) fn fail<T>(why: impl Into<String>) -> Checked<T> {
    Err(Verdict::Failed(why.into()))
}

/// Skips the case.
pub(crate) fn skip<T>(why: impl Into<String>) -> Checked<T> {
    Err(Verdict::Skipped(why.into()))
}

/// Fails the case unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            return $crate::check::fail(format!($($why)+));
        }
    };
}

/// Fails the case unless both are equal.
macro_rules! ensure_eq {
    ($found:expr, $expected:expr, $what:expr) => {
        match (&$found, &$expected) {
            (found, expected) if found == expected => {}
            (found, expected) => {
                return $crate::check::fail(format!("{}: found {found:?}, expected {expected:?}", $what));
            }
        }
    };
}

pub(crate) use {ensure, ensure_eq};

/// The error, which has to be of one of `kinds`.
pub(crate) fn expect_error<T>(result: Result<T, Error>, kinds: &[ErrorKind], what: &str) -> Checked<Error> {
    match result {
        Ok(_) => fail(format!("{what}: succeeded, expected an error of kind {kinds:?}")),
        Err(error) if kinds.contains(&error.kind()) => Ok(error),
        Err(error) => {
            fail(format!("{what}: the error is of kind {:?}, expected {kinds:?}: {error}", error.kind()))
        }
    }
}

/// A part of a sandbox, or the reason to skip.
pub(crate) fn part<'a, P: ?Sized>(found: Option<&'a P>, sandbox: &dyn Sandbox, name: &str) -> Checked<&'a P> {
    match found {
        Some(part) => Ok(part),
        None => skip(reason(&Capabilities::of_sandbox(sandbox), name)),
    }
}

/// A part of a provider, or the reason to skip.
pub(crate) fn provider_part<'a, P: ?Sized>(
    found: Option<&'a P>,
    provider: &dyn SandboxProvider,
    name: &str,
) -> Checked<&'a P> {
    match found {
        Some(part) => Ok(part),
        None => skip(reason(&Capabilities::of_provider(provider), name)),
    }
}

fn reason(capabilities: &Capabilities, name: &str) -> String {
    let why = capabilities.get(name).and_then(|entry| entry.reason.clone()).unwrap_or_default();
    format!("no {name}: {why}")
}

/// Skips where an option is refused as the contract wants it refused.
pub(crate) fn skip_unsupported<T>(result: Result<T, Error>) -> Checked<T> {
    match result {
        Err(error) if error.kind() == ErrorKind::Unsupported => skip(error.message()),
        other => Ok(other?),
    }
}

/// Waits until `look` says true.
pub(crate) async fn eventually<F>(what: &str, mut look: impl FnMut() -> F) -> Checked
where
    F: Future<Output = Checked<bool>>,
{
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if look().await? {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    fail(format!("{what}: not within {PATIENCE:?}"))
}

/// A guest path that is known to be good.
pub(crate) fn at(path: &str) -> Checked<GuestPath> {
    Ok(GuestPath::new(path)?)
}

/// Runs a command with options, bounded.
pub(crate) async fn run(sandbox: &dyn Sandbox, command: &Command, options: RunOptions) -> Checked<Output> {
    let timeout = options.timeout.unwrap_or(COMMAND_TIMEOUT);
    Ok(sandbox.commands().run_opts(command, options.with_timeout(timeout)).await?)
}

/// Runs a script and answers its output; it has to exit with 0.
pub(crate) async fn sh(sandbox: &dyn Sandbox, script: &str) -> Checked<Output> {
    sh_opts(sandbox, script, RunOptions::default()).await
}

/// As [`sh`], with options.
pub(crate) async fn sh_opts(sandbox: &dyn Sandbox, script: &str, options: RunOptions) -> Checked<Output> {
    let output = run(sandbox, &Command::shell(script), options).await?;
    ensure!(
        output.status.is_success(),
        "`{script}` ended with {}: {}{}",
        output.status,
        output.stdout_lossy(),
        output.stderr_lossy()
    );
    Ok(output)
}
