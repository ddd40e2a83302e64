//! The limits of this process that would stop it half-way: seen before anything is done, and told in words that name the remedy.

use std::os::fd::OwnedFd;

use rustix::process::{Resource, getrlimit};
use sandbar::{Error, ErrorKind};

use crate::failure::Result;

/// Descriptors that this process may need at once for itself: the event loop, signals, the data folder, a connection and the files of a copy.
const OWN_DESCRIPTORS: usize = 24;
/// Least limit on open files with which a sandbox is made: what the engine's launch asks for, and the limit is handed down to the process that
/// launches. Linux' own default is 1024.
const CREATION_DESCRIPTORS: u64 = 128;
/// Least limit on file sizes in bytes with which a sandbox comes up: its record and its logs have to fit. Handed down as well.
const CREATION_FILE_SIZE: u64 = 64 << 10;

/// Says whether this process can open what any command needs.
pub(crate) fn check_descriptors() -> Result<()> {
    let dup = || rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 0);
    let opened = (0..OWN_DESCRIPTORS).map(|_| dup()).collect::<rustix::io::Result<Vec<OwnedFd>>>();
    match opened {
        Ok(_) => Ok(()),
        Err(error) => {
            let message =
                format!("no room for {OWN_DESCRIPTORS} more open files{}: {error}", limit_of_files());
            Err(refused(message, "raise it, for example with `ulimit -n 1024`").with_source(error).into())
        }
    }
}

/// Says whether what guards a sandbox, which gets our limits, can do its work.
pub(crate) fn check_creation() -> Result<()> {
    let below = |limit, least| getrlimit(limit).current.is_some_and(|current| current < least);
    if below(Resource::Nofile, CREATION_DESCRIPTORS) {
        let message = format!("a sandbox needs {CREATION_DESCRIPTORS} open files{}", limit_of_files());
        return Err(refused(message, "raise it, for example with `ulimit -n 1024`").into());
    }
    if below(Resource::Fsize, CREATION_FILE_SIZE) {
        let limit = getrlimit(Resource::Fsize).current.unwrap_or(0);
        let message = format!(
            "a sandbox needs files of {CREATION_FILE_SIZE} bytes, and the limit on file sizes (`ulimit -f`) is {limit} bytes"
        );
        return Err(refused(message, "raise it, for example with `ulimit -f unlimited`").into());
    }
    Ok(())
}

fn limit_of_files() -> String {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(String::new(), |limit| format!(", and the limit on open files (`ulimit -n`) is {limit}"))
}

fn refused(message: String, hint: &str) -> Error {
    Error::new(ErrorKind::LimitExceeded, "start", message).with_hint(hint)
}
