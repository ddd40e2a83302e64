use std::process::{Command, Stdio};

use crate::bed::finish;

/// The bare namespace tool that sandboxes are compared with.
pub(crate) const BWRAP: &str = "`bwrap --unshare-all --ro-bind / / true`";

/// A command that runs `true` under it.
pub(crate) fn bwrap() -> Command {
    let mut command = Command::new("bwrap");
    command.args(["--unshare-all", "--ro-bind", "/", "/", "true"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Why it can't be measured, if it can't.
pub(crate) fn no_bwrap() -> Option<String> {
    match finish(&mut bwrap()) {
        Ok(()) => None,
        Err(why) => Some(format!("bubblewrap does not run here ({why}); install the package `bubblewrap`")),
    }
}
