use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::error::Error;
use crate::sys::{self, Cloned};

/// Two instructions take microseconds; a nested hypervisor may take its time, and one that is broken may never come back.
const BOUND: Duration = Duration::from_secs(5);

/// What was seen of the virtualisation device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kvm {
    /// A virtual machine ran instructions, and they did what they should. Whether a whole kernel boots in one is not tried.
    Runs,
    /// A virtual machine can be made; running one is tried on x86-64 only.
    Opens,
}

/// Opens the device at `path`, makes a virtual machine and runs two instructions in it, in a process of its own that is given at most five
/// seconds. Nothing is left.
pub fn probe_kvm(path: &Path) -> Result<Kvm, Error> {
    let name = || path.display().to_string();
    let device = openat(CWD, path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|cause| Error::io("open", name(), cause))?;
    let version = sys::kvm_api_version(device.as_fd())
        .map_err(|cause| Error::io("ask the version of", name(), cause))?;
    if version != sys::KVM_API {
        let why = format!("it speaks version {version} of its interface, expected {}", sys::KVM_API);
        return Err(Error::reason("use", name(), why));
    }
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(|cause| Error::io("make", "a pipe", cause))?;
    let (_, pidfd) = match fork().map_err(|cause| Error::io("start a process to try", name(), cause))? {
        Cloned::Parent { pid, pidfd } => (pid, pidfd),
        Cloned::Child => {
            let (stage, errno) = match virtual_machine(device.as_fd()) {
                Ok(true) => (b'y', 0),
                Ok(false) => (b'n', 0),
                Err((stage, errno)) => (stage, errno.raw_os_error()),
            };
            let errno = errno.to_ne_bytes();
            let _ = rustix::io::write(&write, &[stage, errno[0], errno[1], errno[2], errno[3]]);
            sys::exit(0);
        }
    };
    drop(write);
    let answer = answer(read.as_fd(), Instant::now() + BOUND);
    let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED)
        .map_err(|cause| Error::io("wait for a process that tries", name(), cause))?;
    let answer = answer.map_err(|cause| Error::io("wait for a process that tries", name(), cause))?;
    let errno = i32::from_ne_bytes([answer[1], answer[2], answer[3], answer[4]]);
    let refused = |operation| Err(Error::io(operation, name(), Errno::from_raw_os_error(errno)));
    match answer[0] {
        b'y' if cfg!(target_arch = "x86_64") => Ok(Kvm::Runs),
        b'y' => Ok(Kvm::Opens),
        b'n' => Err(Error::reason(
            "run instructions in a virtual machine of",
            name(),
            "they did not do what they should",
        )),
        b'm' => refused("make a virtual machine with"),
        b'r' => refused("run instructions in a virtual machine of"),
        _ => Err(Error::reason(
            "run instructions in a virtual machine of",
            name(),
            format!("they did not end within {} s", BOUND.as_secs()),
        )),
    }
}

/// In the child: allocates nothing.
fn virtual_machine(device: BorrowedFd<'_>) -> Result<bool, (u8, Errno)> {
    let vm = sys::kvm_create_vm(device).map_err(|errno| (b'm', errno))?;
    #[cfg(target_arch = "x86_64")]
    return sys::kvm_run_two_instructions(device, vm.as_fd()).map_err(|errno| (b'r', errno));
    #[cfg(not(target_arch = "x86_64"))]
    {
        drop(vm);
        Ok(true)
    }
}

/// Five bytes, or zeroes where none came in time.
fn answer(pipe: BorrowedFd<'_>, end: Instant) -> Result<[u8; 5], Errno> {
    let mut answer = [0; 5];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Ok([0; 5]),
            Ok(_) => {
                // So few bytes come whole or not at all.
                rustix::io::read(pipe, &mut answer)?;
                return Ok(answer);
            }
            Err(Errno::INTR) => {}
            Err(cause) => return Err(cause),
        }
    }
}

#[expect(unsafe_code, reason = "the clone itself")]
fn fork() -> Result<Cloned, Errno> {
    // SAFETY: the child makes system calls only, writes to a pipe and exits.
    unsafe { sys::clone(0, None) }
}
