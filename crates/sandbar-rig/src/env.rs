use std::ffi::OsString;
use std::path::PathBuf;

/// Names the folder of the rig around a process.
pub const FOLDER: &str = "SANDBAR_RIG";
/// Names the rig's executable.
const EXECUTABLE: &str = "SANDBAR_RIG_BIN";

/// The folder of the rig around this process.
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// The rig's executable, where it was named.
pub(crate) fn executable() -> Option<OsString> {
    std::env::var_os(EXECUTABLE)
}
