//! The limits of this process that would stop it half-way: seen before anything is done, and told in words that name the remedy.

use std::os::fd::OwnedFd;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandbar::{Error, ErrorKind};

use crate::failure::Result;

/// Descriptors that this process may need at once for itself: the event loop, signals, the data folder, a connection and the files of a copy.
const OWN_DESCRIPTORS: usize = 24;

/// Descriptors beyond which a server has no use for more: what systemd gives a service at most by default is half of that.
const SERVER_DESCRIPTORS: u64 = 1 << 20;

/// Raises the limit on open files to what this process may have: most systems begin with 1024, for programs that can't count further, and a server has a
/// few for each connection.
pub(crate) fn allow_descriptors() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(SERVER_DESCRIPTORS, |maximum| maximum.min(SERVER_DESCRIPTORS));
    if current.is_some_and(|current| current < wanted) {
        // Without it there is room for fewer connections, which the server counts by itself.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}

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
