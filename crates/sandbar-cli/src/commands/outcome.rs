use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sandbar::{KillCause, ProcessExit, SandboxId};
use serde_json::{Value, json};

use crate::output::Printer;
use crate::relay::{Captured, End};

/// The form of decision 0004 for a command that ended.
pub(super) fn to_json(id: &SandboxId, end: End, captured: &Captured, duration: Duration) -> Value {
    use sandbar::ExitStatus::{Code, Signal, Unknown};
    let (outcome, code, signal) = match end {
        End::Exited(ProcessExit { status: Code(code), .. }) => ("exited", Some(code), None),
        End::Exited(ProcessExit { status: Signal(signal), .. }) => ("signaled", None, Some(signal)),
        End::Exited(ProcessExit { status: Unknown, .. }) => ("unknown", None, None),
        End::TimedOut => ("timed_out", None, None),
        End::Interrupted(signal) => ("signaled", None, Some(signal.0)),
        End::Detached(_) => ("detached", None, None),
    };
    let mut value = json!({
        "version": 1,
        "id": id,
        "outcome": outcome,
        "code": code,
        "signal": signal,
        "cause": cause(end),
        "truncated": captured.truncated,
        "duration": duration.as_secs_f64(),
    });
    for (key, bytes) in [("stdout", &captured.stdout), ("stderr", &captured.stderr)] {
        match std::str::from_utf8(bytes) {
            Ok(text) => value[key] = text.into(),
            Err(_) => value[format!("{key}_base64")] = STANDARD.encode(bytes).into(),
        }
    }
    value
}

/// Tells a person why a command did not come to its own end.
pub(super) fn explain(printer: Printer, end: End, timeout: Option<Duration>) {
    match end {
        End::TimedOut => {
            let limit = timeout.map_or(String::new(), |limit| format!(" after {limit:?}"));
            printer.warn(&format!("the command was ended: it ran into its timeout{limit}"));
        }
        End::Exited(exit) => match exit.cause {
            Some(KillCause::Oom) => printer.warn("the command was ended: it ran into the memory limit"),
            Some(KillCause::Pids) => {
                printer.warn("the command was ended: it ran into the limit on processes");
            }
            Some(KillCause::Disk) => printer.warn("the command was ended: it ran into the disk limit"),
            Some(_) => printer.warn("the command was ended: it ran into a limit"),
            None if exit.status == sandbar::ExitStatus::Unknown => {
                printer.warn("the command is gone and nobody knows how it ended");
            }
            None => {}
        },
        End::Interrupted(_) | End::Detached(_) => {}
    }
}

fn cause(end: End) -> Option<KillCause> {
    match end {
        End::Exited(exit) => exit.cause,
        End::TimedOut => Some(KillCause::Timeout),
        End::Interrupted(_) | End::Detached(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use sandbar::{ExitStatus, Signal};

    use super::*;

    fn form(end: End) -> Value {
        let captured = Captured {
            stdout: BytesMut::from("hé\n"),
            stderr: BytesMut::from(&b"\xff"[..]),
            truncated: false,
        };
        to_json(&"i1".parse().unwrap(), end, &captured, Duration::from_millis(1500))
    }

    #[test]
    fn text_is_text_and_the_rest_base64() {
        let exit = ProcessExit { status: ExitStatus::Code(3), cause: None };
        assert_eq!(
            form(End::Exited(exit)),
            json!({
                "version": 1, "id": "i1", "outcome": "exited", "code": 3, "signal": null, "cause": null,
                "stdout": "hé\n", "stderr_base64": "/w==", "truncated": false, "duration": 1.5,
            })
        );
    }

    #[test]
    fn every_end_has_its_word() {
        let exited = |status, cause| End::Exited(ProcessExit { status, cause });
        for (end, outcome, signal, cause) in [
            (exited(ExitStatus::Signal(9), Some(KillCause::Oom)), "signaled", json!(9), json!("oom")),
            (exited(ExitStatus::Unknown, None), "unknown", json!(null), json!(null)),
            (End::TimedOut, "timed_out", json!(null), json!("timeout")),
            (End::Interrupted(Signal::INT), "signaled", json!(2), json!(null)),
        ] {
            let form = form(end);
            assert_eq!(
                (&form["outcome"], &form["signal"], &form["cause"]),
                (&json!(outcome), &signal, &cause)
            );
            assert!(form["code"].is_null());
        }
    }
}
