use std::error::Error as _;
use std::fmt::Write as _;
use std::io::{self, Write as _};

use sandbar::{Error, Retry};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{Printer, escape};

/// Most causes printed below an error; a longer chain is a loop or noise.
const MAX_CAUSES: usize = 8;

impl Printer {
    /// Prints an error on standard error, with its causes and the way out.
    pub(crate) fn error(self, error: &Error) {
        let text = if self.json() { format!("{}\n", to_json(error)) } else { self.to_text(error) };
        // Nobody can be told that standard error is broken.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }

    /// Prints why an invocation failed, and which sandbox is kept all the same.
    pub(crate) fn failure(self, failure: &Failure) {
        let Failure { status: _, error, kept } = failure;
        match (error, kept) {
            (Some(error), None) => self.error(error),
            (error, Some(id)) if self.json() => {
                let mut form = error.as_ref().map_or_else(|| json!({"version": 1, "error": null}), to_json);
                form["kept"] = json!(id);
                // Nobody can be told that standard error is broken.
                let _ = writeln!(io::stderr().lock(), "{form}");
            }
            (error, Some(id)) => {
                if let Some(error) = error {
                    self.error(error);
                }
                self.warn(&format!("kept sandbox {id}"));
            }
            (None, None) => {}
        }
    }

    fn to_text(self, error: &Error) -> String {
        let (red, cyan, plain) = if self.terminal.is_some_and(|terminal| terminal.color) {
            ("\x1b[1;31m", "\x1b[1;36m", "\x1b[0m")
        } else {
            ("", "", "")
        };
        let mut text = format!("{red}error:{plain} {}\n", escape(&error.to_string()));
        // Writing to a string can't fail.
        for cause in causes(error) {
            let _ = writeln!(text, "  cause: {}", escape(&cause));
        }
        if let Some(hint) = error.hint() {
            let _ = writeln!(text, "  {cyan}hint:{plain} {}", escape(hint));
        }
        text
    }
}

/// The causes below an error that say more than what stands above them.
fn causes(error: &Error) -> Vec<String> {
    let mut causes: Vec<String> = Vec::new();
    let mut above = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next.filter(|_| causes.len() < MAX_CAUSES) {
        let text = cause.to_string();
        if !above.contains(&text) {
            causes.push(text.clone());
            above = text;
        }
        next = cause.source();
    }
    causes
}

/// The error form of decision 0004.
pub(super) fn to_json(error: &Error) -> Value {
    let mut message = error.message().to_owned();
    if !error.left_behind().is_empty() {
        let _ = write!(message, " (left behind: {})", error.left_behind().join(", "));
    }
    for cause in causes(error) {
        message.push_str(": ");
        message.push_str(&cause);
    }
    json!({"version": 1, "error": {
        "kind": error.kind(),
        "operation": error.operation(),
        "resource": error.resource(),
        "message": message,
        "hint": error.hint(),
        "retry": match error.retry() {
            Retry::After(wait) => json!({"after": wait.as_secs_f64()}),
            retry => json!(retry),
        },
    }})
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sandbar::ErrorKind;

    use super::*;

    fn error() -> Error {
        Error::new(ErrorKind::Unavailable, "create", "`x\x1b[2J` can't be reached")
            .with_resource("sandbox `x`")
            .with_hint("try `y`")
            .with_retry(Retry::After(Duration::from_millis(1500)))
            .with_source(io::Error::other("connection refused"))
    }

    #[test]
    fn text_has_operation_cause_and_hint_and_is_escaped() {
        assert_eq!(
            Printer::default().to_text(&error()),
            "error: create: `x\\u{1b}[2J` can't be reached\n  cause: connection refused\n  hint: try `y`\n"
        );
    }

    #[test]
    fn json_has_every_key() {
        assert_eq!(
            to_json(&error()),
            json!({"version": 1, "error": {
                "kind": "unavailable",
                "operation": "create",
                "resource": "sandbox `x`",
                "message": "`x\u{1b}[2J` can't be reached: connection refused",
                "hint": "try `y`",
                "retry": {"after": 1.5},
            }})
        );
        let plain = to_json(&Error::invalid("create", "no"));
        assert_eq!(plain["error"]["retry"], "never");
        assert!(plain["error"]["hint"].is_null() && plain["error"]["resource"].is_null());
    }
}
