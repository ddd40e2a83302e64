use std::ffi::OsStr;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use sandbar_core::{ErrorKind, Result};

use crate::error::{fail, io_error};
use crate::wait;

/// Where administrators' programs are, where `PATH` has no such folder.
const FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];
/// What is told of a program's own words, in bytes.
const MOST_WORDS: usize = 400;

/// A program of the system's that makes or mounts file systems.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    /// The package that has it.
    pub(super) package: &'static str,
}

impl Program {
    /// Runs it to its successful end within `bound`; else the error has what it said.
    pub(super) fn run<S: AsRef<OsStr>>(
        self,
        operation: &'static str,
        arguments: &[S],
        bound: Duration,
    ) -> Result<()> {
        let mut child = self.start(operation, arguments)?;
        let ended = wait::until(bound, || child.try_wait().map(|status| status.is_some()));
        let broken = |cause: std::io::Error| io_error(operation, &format!("`{}`", self.name), cause);
        if !ended.map_err(broken)? {
            let _ = child.kill();
            let _ = wait::until(Duration::from_secs(1), || child.try_wait().map(|status| status.is_some()));
            let why = format!("`{}` did not end within {} s", self.name, bound.as_secs());
            return Err(fail(ErrorKind::Timeout, operation, why));
        }
        let status = child.wait().map_err(broken)?;
        if status.success() {
            return Ok(());
        }
        Err(fail(ErrorKind::Config, operation, format!("`{}`: {status}{}", self.name, words(&mut child))))
    }

    fn start<S: AsRef<OsStr>>(self, operation: &'static str, arguments: &[S]) -> Result<Child> {
        let names = std::iter::once(self.name.to_owned());
        let names = names.chain(FOLDERS.map(|folder| format!("{folder}/{}", self.name)));
        for name in names {
            let mut command = Command::new(&name);
            command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            match command.env("LC_ALL", "C").spawn() {
                Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {}
                started => return started.map_err(|cause| io_error(operation, &format!("`{name}`"), cause)),
            }
        }
        let why = format!("this machine has no `{}`", self.name);
        Err(fail(ErrorKind::Config, operation, why)
            .with_hint(format!("install the package `{}`", self.package)))
    }
}

/// What an ended program said of its failure, in one line. Nothing is waited for.
fn words(child: &mut Child) -> String {
    let Some(mut pipe) = child.stderr.take() else { return String::new() };
    let mut words = vec![0; MOST_WORDS];
    let unblocked = fcntl_getfl(&pipe).and_then(|flags| fcntl_setfl(&pipe, flags | OFlags::NONBLOCK));
    let length = unblocked.map_or(0, |()| pipe.read(&mut words).unwrap_or(0));
    let text = String::from_utf8_lossy(&words[..length]);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.is_empty() { line } else { format!(": {}", line.escape_debug()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(10);

    #[test]
    fn an_error_has_what_the_program_said() {
        let shell = Program { name: "sh", package: "dash" };
        shell.run("test", &["-c", "echo fine"], BOUND).unwrap();
        let error = shell.run("test", &["-c", "echo one >&2; echo two >&2; exit 3"], BOUND).unwrap_err();
        assert!(
            error.message().ends_with(": one two") && error.message().contains("exit status: 3"),
            "{error}"
        );
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_its_package() {
        let none = Program { name: "sandbar-no-such-program", package: "some-package" };
        let error = none.run::<&str>("test", &[], BOUND).unwrap_err();
        assert!(error.hint().is_some_and(|hint| hint.contains("some-package")), "{error}");
    }

    #[test]
    fn one_that_does_not_end_is_ended() {
        let sleeper = Program { name: "sleep", package: "coreutils" };
        let error = sleeper.run("test", &["1000"], Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
    }
}
