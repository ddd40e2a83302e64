//! Signals for a process and all that it started: the agent knows that one process alone, and two signals.

use std::time::Duration;

use sandbar_core::{ErrorKind, ExitStatus, Result, Signal, SignalReach, UserName};
use sandbar_wire::envd::{Empty, ListResponse};

use super::EnvdClient;
use super::refusal::is_about_the_user;
use super::script::{Done, Script};
use crate::control::no_such_signal;
use crate::operation::Operation;

/// How long it may take to signal a tree.
const BOUND: Duration = Duration::from_secs(20);
/// How long ending one may take whose time is over.
const AT_LAST: Duration = Duration::from_secs(10);
/// Whoever may signal everything.
const ROOT: &str = "root";
/// There is no such process, or it ended.
const NOBODY: i32 = 3;
/// It may not be signalled.
const MAY_NOT: i32 = 4;
/// Sends signal `$1` to process `$2`, and to all that it started where `$3` is `tree`. What is to be ended is stopped first, so that it can't start
/// more on the way.
const SEND: &str = r#"
signal=$1 root=$2 reach=$3
state_of() { { IFS= read -r line </proc/$1/stat; } 2>/dev/null || return 1; set -- ${line##*) }; state=$1 parent=$2; }
state_of "$root" || exit 3
case $state in Z|X) exit 3;; esac
tree() {
  found=" $root "
  while :; do
    before=$found
    for entry in /proc/[0-9]*; do
      pid=${entry#/proc/}
      case $found in *" $pid "*) continue;; esac
      state_of "$pid" || continue
      case $state in Z|X) continue;; esac
      case $found in *" $parent "*) found="$found$pid ";; esac
    done
    [ "$found" != "$before" ] || break
  done
}
found=" $root "
if [ "$reach" = tree ]; then
  tree
  if [ "$signal" = 9 ]; then
    kill -19 $found 2>/dev/null
    tree
  fi
fi
if kill -"$signal" "$root" 2>/dev/null; then sent=0; else sent=4; fi
for pid in $found; do
  [ "$pid" = "$root" ] || kill -"$signal" "$pid" 2>/dev/null
done
[ "$sent" = 0 ] || state_of "$root" || exit 3
exit "$sent"
"#;

impl EnvdClient {
    /// Signals a process that the agent started; `false` means that there is positively no such process.
    pub(super) async fn signal_started(
        &self,
        pid: u32,
        signal: Signal,
        operation: Operation,
    ) -> Result<bool> {
        check(signal, operation)?;
        let list =
            self.guest.call::<ListResponse>("/process.Process/List", &Empty {}, None, operation).await?;
        let list = list.map_err(|error| crate::fault::rpc(operation, &error))?;
        if !list.processes.iter().any(|process| process.pid == pid) {
            return Ok(false);
        }
        self.send_signal(pid, signal, SignalReach::Tree, BOUND, operation).await
    }

    /// Signals any process.
    pub(super) async fn signal_whoever(
        &self,
        pid: u32,
        signal: Signal,
        reach: SignalReach,
        operation: Operation,
    ) -> Result<bool> {
        check(signal, operation)?;
        self.send_signal(pid, signal, reach, BOUND, operation).await
    }

    /// Ends a process and all that it started, whose time is over; `None` means that nobody knows whether that worked.
    pub(super) async fn end_at_last(&self, pid: u32, operation: Operation) -> Option<bool> {
        let ending = self.send_signal(pid, Signal::KILL, SignalReach::Tree, AT_LAST, operation);
        tokio::time::timeout(AT_LAST, ending).await.ok()?.ok().map(|_| true)
    }

    async fn send_signal(
        &self,
        pid: u32,
        signal: Signal,
        reach: SignalReach,
        bound: Duration,
        operation: Operation,
    ) -> Result<bool> {
        let reach = match reach {
            SignalReach::Tree => "tree",
            SignalReach::Process => "process",
        };
        let arguments = || vec![signal.0.to_string(), pid.to_string(), reach.to_owned()];
        let done = self.script_as_root(SEND, arguments, bound, operation).await?;
        match done.status {
            ExitStatus::Code(0) => Ok(true),
            ExitStatus::Code(NOBODY) => Ok(false),
            ExitStatus::Code(MAY_NOT) => {
                let message = format!("process {pid} may not be signalled");
                Err(operation.fail(ErrorKind::PermissionDenied, message))
            }
            _ => Err(done.failed("signal it inside", operation)),
        }
    }

    /// Runs a script as root, and where the sandbox has no root to run as, as whoever is the default.
    pub(super) async fn script_as_root(
        &self,
        text: &'static str,
        arguments: impl Fn() -> Vec<String>,
        bound: Duration,
        operation: Operation,
    ) -> Result<Done> {
        let root = UserName::new(ROOT)?;
        let script = Script::new(text, arguments(), bound).with_user(Some(&root));
        match self.script(script, operation).await {
            Err(error) if is_about_the_user(&error) => {
                self.script(Script::new(text, arguments(), bound), operation).await
            }
            done => done,
        }
    }
}

fn check(signal: Signal, operation: Operation) -> Result<()> {
    if sandbar_wire::envd::Signal::new(signal.0).is_standard() {
        return Ok(());
    }
    Err(no_such_signal(operation, signal))
}
