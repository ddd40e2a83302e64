//! Trees of files between this machine and a sandbox, or between sandboxes.
//!
//! They pass as a tar stream to or from the sandbox's own `tar`, which keeps links, modes and times; this side reads and writes its tree by
//! descriptors and follows no link below the path that was typed. A copy is made under a temporary name beside its destination and renamed
//! when it is whole.

mod between;
mod download;
mod empties;
mod guest_program;
mod host_tree;
mod inward;
mod landing;
mod meter;
mod outward;
mod passage;
mod refusal;
mod stop;
mod unpack;

use std::io;
use std::time::Duration;

use sandbar::{Error, ErrorKind};

pub(crate) use between::copy_between;
pub(crate) use inward::copy_in;
pub(crate) use meter::Meter;
pub(crate) use outward::copy_out;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use unpack::fuzzing;

/// Most members of one copy from a sandbox: a hostile one could otherwise use up the inodes of where it goes.
const MAX_MEMBERS: u64 = 4_000_000;
/// Most bytes of names that a copy from a sandbox keeps in memory: those of a million folders, each deep.
const MAX_NAMES: usize = 256 << 20;
/// How long the other side may take to accept or send anything, before a copy is given up.
const STALL: Duration = Duration::from_secs(120);
/// Random bytes in a temporary name: enough that two never meet.
const RANDOM: usize = 8;

fn too_many_names() -> io::Error {
    io::Error::other(format!("the names of its folders and links are more than {} MiB", MAX_NAMES >> 20))
}

/// A name that nobody else uses.
fn temporary_name(purpose: &str) -> Result<String, Error> {
    let mut random = [0; RANDOM];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Error::new(ErrorKind::Unexpected, "copy", format!("no random bytes: {error}")))?;
    Ok(format!(".sandbar-{purpose}-{:016x}", u64::from_ne_bytes(random)))
}

/// The error of a copy, of `what`, in either direction.
fn copy_error(what: &str, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unexpected, "copy", format!("{what}: {why}")).with_resource(what)
}
