use rustix::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use rustix::io::Errno;

/// `struct landlock_ruleset_attr` as of ABI 6.
#[repr(C)]
struct RulesetAttr {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// `struct landlock_path_beneath_attr`, which the kernel declares packed.
#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;

/// The Landlock version of this kernel, 0 where it has none.
pub(crate) fn abi() -> u32 {
    // SAFETY: with this flag the kernel reads no memory and answers its version.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<RulesetAttr>(),
            0usize,
            CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(answer).unwrap_or(0)
}

/// Allows this process file access beneath these folders and nowhere else; where the version offers scopes, abstract sockets
/// and signals stay among those confined with it. Allocation-free.
pub(crate) fn confine_to(folders: &[BorrowedFd<'_>], abi: u32) -> Result<(), Errno> {
    let access = file_access(abi);
    // Scopes (bit 0: abstract Unix sockets, bit 1: signals) came with version 6; older kernels refuse a longer struct.
    let (scoped, size) = if abi >= 6 { (0b11, size_of::<RulesetAttr>()) } else { (0, size_of::<u64>()) };
    let attr = RulesetAttr { handled_access_fs: access, handled_access_net: 0, scoped };
    // SAFETY: `attr` is valid for `size` bytes.
    let answer = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attr, size, 0u32) };
    let raw = i32::try_from(check(answer)?).map_err(|_| Errno::OVERFLOW)?;
    // SAFETY: the call answered a fresh descriptor.
    let ruleset = unsafe { OwnedFd::from_raw_fd(raw) };
    for folder in folders {
        let rule = PathBeneath { allowed_access: access, parent_fd: folder.as_raw_fd() };
        // SAFETY: `rule` has the layout that this rule type asks for.
        check(unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                ruleset.as_raw_fd(),
                RULE_PATH_BENEATH,
                &raw const rule,
                0u32,
            )
        })?;
    }
    // SAFETY: plain integers.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0u32) })?;
    Ok(())
}

/// Every file right the version knows, by `linux/landlock.h`: 13 from the start, then refer, truncate, device ioctl.
fn file_access(abi: u32) -> u64 {
    match abi {
        0 | 1 => 0x1fff,
        2 => 0x3fff,
        3 | 4 => 0x7fff,
        _ => 0xffff,
    }
}

fn check(answer: libc::c_long) -> Result<libc::c_long, Errno> {
    if answer >= 0 {
        return Ok(answer);
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}
