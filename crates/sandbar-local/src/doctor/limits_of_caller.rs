use std::path::Path;

use rustix::process::{Resource, getrlimit};
use sandbar_core::{ErrorKind, Result};

use super::condition::Fault;
use super::table::limits;
use super::wording::Facts;
use super::words::explain;
use crate::error::fail;

/// Least limit on open files with which a sandbox is made: what the engine's launch asks for, and the limit is handed down to the process that
/// launches. Linux' own default is 1024.
pub(super) const LEAST_FILES: u64 = 160;
/// Least limit on file sizes in bytes with which a sandbox comes up: its record and its logs have to fit. Handed down as well.
pub(super) const LEAST_FILE_SIZE: u64 = 64 << 10;

/// Says whether what guards a sandbox, which gets the limits of this process, can do its work: before anything is done.
pub(crate) fn check_limits(home: &Path) -> Result<()> {
    let below = |limit, least| getrlimit(limit).current.filter(|current| *current < least);
    let refused = |message: String, fault: &'static Fault| {
        Err(explain(&fail(ErrorKind::LimitExceeded, "create", message), fault, &Facts::read(home, None)))
    };
    if let Some(limit) = below(Resource::Nofile, LEAST_FILES) {
        let message = format!(
            "a sandbox needs {LEAST_FILES} open files, and the limit on open files (`ulimit -n`) is {limit}"
        );
        return refused(message, &limits::OPEN_FILES_NONE);
    }
    if let Some(limit) = below(Resource::Fsize, LEAST_FILE_SIZE) {
        let message = format!(
            "a sandbox needs files of {LEAST_FILE_SIZE} bytes, and the limit on file sizes (`ulimit -f`) is {limit} bytes"
        );
        return refused(message, &limits::FILE_SIZE_NONE);
    }
    Ok(())
}
