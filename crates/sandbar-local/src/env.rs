//! The only place that reads the environment.

use std::ffi::OsString;
use std::path::PathBuf;

/// Where the data folder is.
pub(crate) const HOME: &str = "SANDBAR_HOME";
/// Where the `sandbar` executable is.
pub(crate) const HELPER: &str = "SANDBAR_HELPER";

/// What the environment says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    /// `SANDBAR_HOME`.
    pub(crate) sandbar_home: Option<PathBuf>,
    /// `SANDBAR_HELPER`.
    pub(crate) helper: Option<PathBuf>,
    /// `XDG_DATA_HOME`, if it is absolute, as its specification demands.
    pub(crate) xdg_data_home: Option<PathBuf>,
    /// `HOME`.
    pub(crate) home: Option<PathBuf>,
    /// `PATH`.
    pub(crate) path: OsString,
}

impl Environment {
    /// Reads it.
    pub(crate) fn read() -> Self {
        let path = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self {
            sandbar_home: path(HOME),
            helper: path(HELPER),
            xdg_data_home: path("XDG_DATA_HOME").filter(|path| path.is_absolute()),
            home: path("HOME"),
            path: std::env::var_os("PATH").unwrap_or_default(),
        }
    }
}
