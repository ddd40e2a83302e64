//! What runs between the clone and the program. It is alone with a copy of the parent's memory, so nothing in here allocates, locks or unwinds.

use std::ffi::CStr;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, configure_capability_in_ambient_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};

use super::MAX_DESCRIPTORS;
use crate::capabilities::LAST_KNOWN;
use crate::launch::bare_root;
use crate::sys;

/// The parent's word that the id maps are there.
pub(super) const GO: u8 = b'g';
/// A report of a failed step: its place in [`STEPS`] and the error number, four bytes each.
pub(super) const REPORT_BYTES: usize = 8;
/// Descriptors of ours are moved up here, above all that the program is given.
pub(super) const PARKING: i32 = 96;
const _: () = assert!(PARKING as usize > MAX_DESCRIPTORS);

/// What is done, as an error says it.
pub(super) const STEPS: [&str; 6] = [
    "wait for the ids of",
    "take the ids of",
    "take away the host from",
    "lay out the descriptors of",
    "drop the rights of",
    "execute",
];

/// Rights over files of its own ids: `CAP_CHOWN`, `CAP_DAC_OVERRIDE`, `CAP_DAC_READ_SEARCH`, `CAP_FOWNER`.
const KEPT: u64 = 0b1111;
/// Most memory such a program may map, in bytes: several times what the largest folder or archive header needs.
const MAX_MEMORY: u64 = 2 << 30;
/// Descriptors that it may have open: a tree as deep as is allowed, of as many layers as are likely to share it.
const MAX_OPEN: u64 = 16_384;

pub(super) struct Child<'a> {
    pub(super) program: BorrowedFd<'a>,
    pub(super) name: &'a CStr,
    pub(super) has_root: bool,
    pub(super) descriptors: &'a [OwnedFd],
    pub(super) sync: BorrowedFd<'a>,
    /// The parent's end, which the child must not keep: it would never see the parent's death.
    pub(super) parent_end: BorrowedFd<'a>,
}

/// Becomes the program, or tells the parent what did not work and ends.
pub(super) fn run(child: &Child<'_>) -> ! {
    let _ = sys::close_raw(child.parent_end.as_raw_fd());
    sys::reset_signals();
    let steps: [&dyn Fn() -> Result<(), Errno>; 6] = [
        &|| await_maps(child.sync),
        &|| take_ids(child),
        &bare_root,
        &|| lay_out(child),
        &|| drop_rights(child.has_root),
        &|| Err(sys::exec_at(child.program, child.name)),
    ];
    for (number, step) in steps.iter().enumerate() {
        if let Err(errno) = step() {
            let mut packet = [0; REPORT_BYTES];
            packet[..4].copy_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
            packet[4..].copy_from_slice(&errno.raw_os_error().cast_unsigned().to_le_bytes());
            let _ = send(child.sync, &packet, SendFlags::NOSIGNAL);
            sys::exit(1);
        }
    }
    sys::exit(1)
}

fn await_maps(sync: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut word = [0; 1];
    loop {
        match recv(sync, &mut word[..], RecvFlags::empty()) {
            Ok((_, 1)) if word[0] == GO => return Ok(()),
            Err(Errno::INTR) => {}
            // The parent is gone: nobody is there to tell.
            Ok(_) => sys::exit(1),
            Err(cause) => return Err(cause),
        }
    }
}

fn take_ids(child: &Child<'_>) -> Result<(), Errno> {
    if child.has_root {
        sys::clear_groups()?;
        sys::set_ids(0, 0)?;
    }
    // After the ids: a change of them takes it back.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Whoever died before that sent no signal.
    match recv(child.sync, &mut [0; 1][..], RecvFlags::DONTWAIT) {
        Err(Errno::AGAIN) => Ok(()),
        Ok(_) => sys::exit(1),
        Err(cause) => Err(cause),
    }
}

fn lay_out(child: &Child<'_>) -> Result<(), Errno> {
    let mut first_closed = 0;
    for fd in child.descriptors {
        sys::dup_onto(as_borrowed(fd), first_closed)?;
        first_closed += 1;
    }
    // What the caller's process had open without the mark, and our own.
    sys::close_on_exec_from(first_closed)
}

fn as_borrowed(fd: &OwnedFd) -> BorrowedFd<'_> {
    std::os::fd::AsFd::as_fd(fd)
}

fn drop_rights(has_root: bool) -> Result<(), Errno> {
    for (resource, value) in [(Resource::Core, 0), (Resource::As, MAX_MEMORY), (Resource::Nofile, MAX_OPEN)] {
        let value = getrlimit(resource).maximum.map_or(value, |hard| hard.min(value));
        setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })?;
    }
    for number in 0..64_u8 {
        if KEPT >> number & 1 == 1 {
            continue;
        }
        let Some(capability) = CapabilitySet::from_bits(1 << number) else { break };
        match remove_capability_from_bounding_set(capability) {
            // The kernel has no more of them.
            Err(Errno::INVAL) if number > LAST_KNOWN => break,
            Err(Errno::INVAL) if number > 0 => {}
            done => done?,
        }
    }
    let kept = CapabilitySet::from_bits_retain(KEPT);
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: kept })?;
    if !has_root {
        // Root gets what is left when it executes; the one user has to be given it.
        for number in 0..4 {
            configure_capability_in_ambient_set(CapabilitySet::from_bits_retain(1 << number), true)?;
        }
    }
    set_no_new_privs(true)
}
