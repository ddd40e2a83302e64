//! Every environment variable that the command line itself reads, in one place.
//!
//! `SANDBAR_HOME` and `SANDBAR_HELPER` are the local backend's own and are read there.

use std::ffi::OsString;

/// Where sandboxes run, when `--provider` does not say.
pub(crate) const SANDBAR_URL: &str = "SANDBAR_URL";
/// Set and not empty: no colours (<https://no-color.org>).
pub(crate) const NO_COLOR: &str = "NO_COLOR";
/// `dumb` is a terminal that can't move its cursor: no progress display.
pub(crate) const TERM: &str = "TERM";

/// What the environment said when the command line started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    pub(crate) url: Option<String>,
    pub(crate) no_color: bool,
    pub(crate) dumb_terminal: bool,
}

impl Environment {
    pub(crate) fn read() -> Self {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            url: set(SANDBAR_URL).map(|url| url.to_string_lossy().into_owned()),
            no_color: set(NO_COLOR).is_some(),
            dumb_terminal: set(TERM).is_some_and(|term| term == "dumb"),
        }
    }
}

/// The caller's own value of a variable that `-e NAME` asks for. An empty value is a value.
pub(crate) fn callers(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}
