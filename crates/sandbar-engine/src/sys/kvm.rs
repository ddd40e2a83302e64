use std::ffi::c_void;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::io::Errno;

// Requests of `linux/kvm.h`; those with a struct hold its size.
const GET_API_VERSION: libc::c_ulong = 0xae00;
const CREATE_VM: libc::c_ulong = 0xae01;
#[cfg(target_arch = "x86_64")]
const GET_VCPU_MMAP_SIZE: libc::c_ulong = 0xae04;
#[cfg(target_arch = "x86_64")]
const CREATE_VCPU: libc::c_ulong = 0xae41;
#[cfg(target_arch = "x86_64")]
const SET_USER_MEMORY_REGION: libc::c_ulong = 0x4020_ae46;
#[cfg(target_arch = "x86_64")]
const RUN: libc::c_ulong = 0xae80;
#[cfg(target_arch = "x86_64")]
const GET_SREGS: libc::c_ulong = 0x8138_ae83;
#[cfg(target_arch = "x86_64")]
const SET_SREGS: libc::c_ulong = 0x4138_ae84;
#[cfg(target_arch = "x86_64")]
const SET_REGS: libc::c_ulong = 0x4090_ae82;

/// The version of the interface since Linux 2.6.22; the kernel's own documentation says to refuse any other.
pub(crate) const KVM_API: i32 = 12;

/// The version that the device answers.
pub(crate) fn kvm_api_version(kvm: BorrowedFd<'_>) -> Result<i32, Errno> {
    // SAFETY: the request takes no argument.
    check(unsafe { libc::ioctl(kvm.as_raw_fd(), GET_API_VERSION as _, 0) })
}

/// A virtual machine with nothing in it.
pub(crate) fn kvm_create_vm(kvm: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    // SAFETY: type 0 is the default machine; no memory involved.
    let raw = check(unsafe { libc::ioctl(kvm.as_raw_fd(), CREATE_VM as _, 0) })?;
    // SAFETY: the call answered a fresh descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Runs two instructions in the machine: one stores a byte, the other halts. `false`: they ran, and what they did is not to be seen.
/// Allocation-free; what it maps stays until this process ends.
#[cfg(target_arch = "x86_64")]
pub(crate) fn kvm_run_two_instructions(kvm: BorrowedFd<'_>, vm: BorrowedFd<'_>) -> Result<bool, Errno> {
    #[repr(C)]
    struct Region {
        slot: u32,
        flags: u32,
        guest_phys_addr: u64,
        memory_size: u64,
        userspace_addr: u64,
    }
    const PAGE: usize = 4096;
    // mov byte ptr [0x100], 42; hlt
    const CODE: [u8; 6] = [0xc6, 0x06, 0x00, 0x01, 42, 0xf4];
    const STORED_AT: usize = 0x100;
    // In 64-bit words of `struct kvm_regs`.
    const RFLAGS: usize = 17;
    // `struct kvm_sregs` begins with the code segment: base, limit, selector.
    const SELECTOR: usize = 12;
    // In 32-bit words of `struct kvm_run`.
    const EXIT_REASON: usize = 2;
    const EXIT_HLT: u32 = 5;

    let memory = map(None, PAGE)?;
    // SAFETY: the mapping is a page, and the code is shorter.
    unsafe { std::ptr::copy_nonoverlapping(CODE.as_ptr(), memory.cast::<u8>(), CODE.len()) };
    let region = Region {
        slot: 0,
        flags: 0,
        guest_phys_addr: 0,
        memory_size: PAGE as u64,
        userspace_addr: memory as u64,
    };
    // SAFETY: `region` has the layout that the request reads, and names memory that stays mapped.
    check(unsafe { libc::ioctl(vm.as_raw_fd(), SET_USER_MEMORY_REGION as _, &raw const region) })?;
    // SAFETY: number 0; no memory involved.
    let raw = check(unsafe { libc::ioctl(vm.as_raw_fd(), CREATE_VCPU as _, 0) })?;
    // SAFETY: the call answered a fresh descriptor.
    let cpu = unsafe { OwnedFd::from_raw_fd(raw) };
    // SAFETY: the request takes no argument.
    let size = check(unsafe { libc::ioctl(kvm.as_raw_fd(), GET_VCPU_MMAP_SIZE as _, 0) })?;
    let size = usize::try_from(size).map_err(|_| Errno::INVAL)?;
    let run = map(Some(&cpu), size)?;

    let mut segments = [0_u8; 0x138];
    // SAFETY: the request writes as many bytes as its number says, which is the length of the array.
    check(unsafe { libc::ioctl(cpu.as_raw_fd(), GET_SREGS as _, segments.as_mut_ptr()) })?;
    segments[..8].fill(0);
    segments[SELECTOR..SELECTOR + 2].fill(0);
    // SAFETY: it reads as many.
    check(unsafe { libc::ioctl(cpu.as_raw_fd(), SET_SREGS as _, segments.as_ptr()) })?;
    let mut registers = [0_u64; 18];
    // Bit 1 is always set.
    registers[RFLAGS] = 2;
    // SAFETY: it reads 144 bytes, the length of the array.
    check(unsafe { libc::ioctl(cpu.as_raw_fd(), SET_REGS as _, registers.as_ptr()) })?;
    // SAFETY: no argument; the memory that the machine may touch is the page above.
    check(unsafe { libc::ioctl(cpu.as_raw_fd(), RUN as _, 0) })?;
    // SAFETY: the mapping is `size` bytes long, which holds a `kvm_run`, page-aligned, and the machine stands still.
    let reason = unsafe { run.cast::<u32>().add(EXIT_REASON).read_volatile() };
    // SAFETY: within the page.
    let stored = unsafe { memory.cast::<u8>().add(STORED_AT).read_volatile() };
    Ok(reason == EXIT_HLT && stored == 42)
}

#[cfg(target_arch = "x86_64")]
fn map(of: Option<&OwnedFd>, size: usize) -> Result<*mut c_void, Errno> {
    let (flags, fd) = match of {
        Some(fd) => (libc::MAP_SHARED, fd.as_raw_fd()),
        None => (libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1),
    };
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory that exists.
    let at =
        unsafe { libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
    if at == libc::MAP_FAILED { Err(last()) } else { Ok(at) }
}

fn check(answer: libc::c_int) -> Result<i32, Errno> {
    if answer >= 0 { Ok(answer) } else { Err(last()) }
}

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
