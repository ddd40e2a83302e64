//! The limits of this process that would stop it half-way: seen before anything is done, and told in words that name the remedy.

use std::os::fd::OwnedFd;

use rustix::process::{Resource, getrlimit};
use sandbar::{Error, ErrorKind};

use crate::failure::Result;

/// Descriptors that this process may need at once for itself: the event loop, signals, the data folder, a connection and the files of a copy.
const OWN_DESCRIPTORS: usize = 24;

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

fn limit_of_files() -> String {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(String::new(), |limit| format!(", and the limit on open files (`ulimit -n`) is {limit}"))
}

fn refused(message: String, hint: &str) -> Error {
    Error::new(ErrorKind::LimitExceeded, "start", message).with_hint(hint)
}
