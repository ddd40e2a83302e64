use std::fmt::Display;

use sandbar::Error;
use serde::Serialize;
use serde_json::json;

use crate::exit::ExitStatus;
use crate::failure::Result;
use crate::output::{Printer, print_json};

/// What is done to each of several things that were named, in words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deed {
    /// While it is being done, such as `removing`.
    pub(crate) doing: &'static str,
    /// Once it is done: the key in JSON, too.
    pub(crate) done: &'static str,
}

/// Removes what was named.
pub(crate) const REMOVE: Deed = Deed { doing: "removing", done: "removed" };

/// Does it to each; one that is absent, or to which it can't be done, does not keep the others. `act` answers the name by which it was done, and nothing for one that is positively
/// absent; `absent` is the error of such a one.
pub(crate) async fn each<T: Display + Serialize, N: Display + Serialize>(
    deed: Deed,
    names: &[T],
    act: impl AsyncFn(&T) -> Result<Option<N>, Error>,
    absent: impl Fn(&T) -> Error,
    printer: Printer,
) -> Result<ExitStatus> {
    let Deed { doing, done } = deed;
    let (mut acted, mut gone, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for name in names {
        match printer.progress(&format!("{doing} {name}"), act(name)).await {
            Ok(Some(by)) => {
                printer.detail(|| format!("{done} {by}"));
                acted.push(by);
            }
            Ok(None) => {
                printer.error(&absent(name));
                gone.push(name);
            }
            Err(error) => {
                printer.error(&error);
                failed.push(name);
            }
        }
    }
    if printer.json() {
        let mut report = json!({"version": 1, "absent": gone, "failed": failed});
        report[done] = json!(acted);
        print_json(&report)?;
    }
    Ok(match (failed.as_slice(), gone.as_slice()) {
        ([_, ..], _) => ExitStatus::Failed,
        ([], [_, ..]) => ExitStatus::Absent,
        ([], []) => ExitStatus::Done,
    })
}
