#![expect(unsafe_code, reason = "what runs between fork and exec can't use the standard library")]

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::OnceLock;

use super::child::{EXITED, FAILED, RECORD_BYTES, STARTED};
use super::spawn::{Resource, Spawn};
use super::{Capabilities, Identity, Stage};

/// Stack of the program's process until it executes; what runs on it calls into libc a few levels deep.
const STACK_BYTES: usize = 64 << 10;
/// Highest number of a signal. Reset by the raw call: libc keeps two of them from its users, but an ancestor may have
/// ignored them.
const LAST_SIGNAL: c_int = 64;
/// The kernel's `sigaction` for the default action: handler, flags, restorer and mask are zero.
const DEFAULT_ACTION: [u64; 4] = [0; 4];

/// Everything the two processes after the fork need, prepared before it: from there on nothing may allocate.
pub(super) struct Plan<'a> {
    programs: Vec<*const c_char>,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    cwd: *const c_char,
    identity: Option<(u32, u32)>,
    groups: Option<&'a [u32]>,
    capabilities: Option<u64>,
    bounding_drop: u64,
    descriptors: Vec<RawFd>,
    controlling_terminal: bool,
    limits: Vec<(c_uint, libc::rlimit64)>,
    report: RawFd,
    stack: Vec<u128>,
    /// Written by the program's process, which shares memory with the stub until it executes.
    failure: Option<(Stage, c_int)>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(
        spawn: &'a Spawn,
        inner: &[OwnedFd],
        report: RawFd,
        controlling_terminal: bool,
    ) -> Self {
        let pointers = |strings: &'a [std::ffi::CString]| {
            strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect::<Vec<_>>()
        };
        let (identity, groups) = match &spawn.identity {
            Identity::Keep => (None, None),
            Identity::Set { uid, gid, groups } => {
                (Some((*uid, *gid)), (!setgroups_is_denied()).then_some(groups.as_slice()))
            }
        };
        let capabilities = match spawn.capabilities {
            Capabilities::None => Some(0),
            Capabilities::AtMost(mask) => Some(mask),
            Capabilities::Inherit => None,
        };
        Self {
            programs: pointers(&spawn.programs),
            argv: pointers(&spawn.argv),
            envp: pointers(&spawn.env),
            cwd: spawn.cwd.as_ref().map_or(ptr::null(), |cwd| cwd.as_ptr()),
            identity,
            groups,
            capabilities,
            bounding_drop: capabilities.map_or(0, |keep| bounding_set() & !keep),
            descriptors: inner.iter().map(AsRawFd::as_raw_fd).collect(),
            controlling_terminal,
            limits: spawn
                .rlimits
                .iter()
                .map(|limit| {
                    let values =
                        libc::rlimit64 { rlim_cur: limit.soft.min(limit.hard), rlim_max: limit.hard };
                    (resource_number(limit.resource), values)
                })
                .collect(),
            report,
            stack: vec![0; STACK_BYTES / size_of::<u128>()],
            failure: None,
        }
    }
}

fn resource_number(resource: Resource) -> c_uint {
    match resource {
        Resource::As => libc::RLIMIT_AS,
        Resource::Core => libc::RLIMIT_CORE,
        Resource::Cpu => libc::RLIMIT_CPU,
        Resource::Data => libc::RLIMIT_DATA,
        Resource::Fsize => libc::RLIMIT_FSIZE,
        Resource::Memlock => libc::RLIMIT_MEMLOCK,
        Resource::Nofile => libc::RLIMIT_NOFILE,
        Resource::Nproc => libc::RLIMIT_NPROC,
        Resource::Stack => libc::RLIMIT_STACK,
    }
}

/// Where an ordinary user made the user namespace, the kernel refuses `setgroups` in it for good.
fn setgroups_is_denied() -> bool {
    static DENIED: OnceLock<bool> = OnceLock::new();
    *DENIED.get_or_init(|| std::fs::read("/proc/self/setgroups").is_ok_and(|text| text.starts_with(b"deny")))
}

fn bounding_set() -> u64 {
    static SET: OnceLock<u64> = OnceLock::new();
    *SET.get_or_init(|| {
        (0..64 as c_ulong).fold(0, |set, capability| {
            // SAFETY: takes integers only; an unknown number is an error.
            let present = unsafe { libc::prctl(libc::PR_CAPBSET_READ, capability, 0, 0, 0) };
            if present == 1 { set | 1 << capability } else { set }
        })
    })
}

/// Forks the stub. Returns its process id and a descriptor of it.
pub(super) fn launch(mut plan: Plan<'_>) -> io::Result<(i32, OwnedFd)> {
    let mut every = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    let mut pidfd: c_int = -1;
    // SAFETY: both sets are written before they are read. The new process is a copy of this thread with memory of its
    // own; it runs `stub`, which makes only calls that are safe after a fork and never returns. No signal handler of
    // ours can run in it, as all signals are blocked across the fork and stay blocked there.
    let pid = unsafe {
        libc::sigfillset(every.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, every.as_ptr(), before.as_mut_ptr());
        let flags = libc::CLONE_PIDFD | libc::SIGCHLD;
        let pid = libc::syscall(libc::SYS_clone, c_long::from(flags), 0, &raw mut pidfd, 0, 0);
        if pid == 0 {
            stub(&mut plan);
        }
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        if pid < 0 {
            return Err(error);
        }
        pid
    };
    // SAFETY: CLONE_PIDFD has just made this descriptor for us.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok((i32::try_from(pid).unwrap_or(i32::MAX), pidfd))
}

/// The stub's whole life.
///
/// # Safety
/// Only to be called in a process that was just forked.
unsafe fn stub(plan: &mut Plan<'_>) -> ! {
    let report = plan.report;
    // SAFETY: every call here is safe after a fork: system calls on integers and on memory of the plan. The clone
    // shares this memory and suspends this process until the other one has executed or exited, so that `plan` and
    // its stack are used by one of the two at a time.
    unsafe {
        // The starter may ignore it, and then statuses would vanish.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        let stack = plan.stack.as_mut_ptr_range().end.cast::<c_void>();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let pid = libc::clone(program, stack, flags, ptr::from_mut(plan).cast());
        let fork_error = *libc::__errno_location();
        close_all_but(report);
        if pid < 0 {
            send(report, FAILED, Stage::Fork as u8, fork_error);
            libc::_exit(0);
        }
        if let Some((stage, errno)) = plan.failure {
            send(report, FAILED, stage as u8, errno);
            libc::_exit(0);
        }
        send(report, STARTED, 0, pid);
        loop {
            let mut status = 0;
            let ended = libc::waitpid(-1, &raw mut status, 0);
            if ended == pid {
                send(report, EXITED, 0, status);
            } else if ended < 0 && *libc::__errno_location() != libc::EINTR {
                libc::_exit(0);
            }
        }
    }
}

/// # Safety
/// Only after a fork: closes descriptors that others own.
unsafe fn close_all_but(keep: RawFd) {
    let keep = keep.cast_unsigned();
    // SAFETY: takes integers only.
    unsafe {
        libc::syscall(libc::SYS_close_range, 0, keep - 1, 0);
        libc::syscall(libc::SYS_close_range, keep + 1, c_uint::MAX, 0);
    }
}

/// # Safety
/// Async-signal-safe; the descriptor should be the report pipe.
unsafe fn send(report: RawFd, kind: u8, stage: u8, number: c_int) {
    let [a, b, c, d] = number.to_ne_bytes();
    let record: [u8; RECORD_BYTES] = [kind, stage, 0, 0, a, b, c, d];
    // SAFETY: the buffer is valid. The pipe holds more than the two records there ever are, so this can't block.
    unsafe { libc::write(report, record.as_ptr().cast(), RECORD_BYTES) };
}

/// First code of the process that becomes the program. Shares memory with the suspended stub.
extern "C" fn program(plan: *mut c_void) -> c_int {
    // SAFETY: the stub passes its plan, which nobody else uses while the stub is suspended.
    let plan = unsafe { &mut *plan.cast::<Plan<'_>>() };
    // SAFETY: this is the process that the function is for.
    let failure = unsafe { become_program(plan) };
    plan.failure = Some(failure);
    // SAFETY: ends this process alone.
    unsafe { libc::_exit(127) }
}

fn last(stage: Stage) -> (Stage, c_int) {
    // SAFETY: the location is valid for the life of the thread.
    (stage, unsafe { *libc::__errno_location() })
}

/// Returns only where something failed.
///
/// # Safety
/// Only in a process made for it, between clone and exec.
unsafe fn become_program(plan: &Plan<'_>) -> (Stage, c_int) {
    // SAFETY: system calls on integers and on memory of the plan, which outlives them. Arrays end with a null pointer.
    // Ids are changed by raw system calls, as libc's own functions would signal threads that don't exist here.
    unsafe {
        libc::setsid();
        for (number, source) in (0..).zip(&plan.descriptors) {
            if libc::dup2(*source, number) < 0 {
                return last(Stage::Descriptors);
            }
        }
        if plan.controlling_terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
            return last(Stage::Descriptors);
        }
        let first_free = c_uint::try_from(plan.descriptors.len()).unwrap_or(3);
        if libc::syscall(libc::SYS_close_range, first_free, c_uint::MAX, 0) < 0 {
            return last(Stage::Descriptors);
        }
        libc::umask(0o022);
        for (resource, limit) in &plan.limits {
            if libc::syscall(libc::SYS_prlimit64, 0, *resource, ptr::from_ref(limit), ptr::null::<c_void>())
                < 0
            {
                return last(Stage::Limits);
            }
        }
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if let Err(failure) = take_identity(plan) {
            return failure;
        }
        if !plan.cwd.is_null() && libc::chdir(plan.cwd) < 0 {
            return last(Stage::Chdir);
        }
        for signal in 1..=LAST_SIGNAL {
            let action = DEFAULT_ACTION.as_ptr();
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                action,
                ptr::null_mut::<c_void>(),
                size_of::<u64>(),
            );
        }
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
        execute(plan)
    }
}

/// # Safety
/// As [`become_program`].
unsafe fn take_identity(plan: &Plan<'_>) -> Result<(), (Stage, c_int)> {
    // SAFETY: as in `become_program`.
    unsafe {
        // Lowering the bounding set needs a right that the starter may not have; then it has a short one already.
        for capability in 0..64 as c_ulong {
            if plan.bounding_drop & 1 << capability != 0 {
                libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
            }
        }
        if let Some((uid, gid)) = plan.identity {
            if let Some(groups) = plan.groups
                && libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) < 0
            {
                return Err(last(Stage::Identity));
            }
            if libc::syscall(libc::SYS_setresgid, gid, gid, gid) < 0
                || libc::syscall(libc::SYS_setresuid, uid, uid, uid) < 0
            {
                return Err(last(Stage::Identity));
            }
        }
        if let Some(keep) = plan.capabilities {
            libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
            lower_capabilities(keep)?;
        }
    }
    Ok(())
}

/// Version 3 of the structures of `capset`.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// # Safety
/// As [`become_program`].
unsafe fn lower_capabilities(keep: u64) -> Result<(), (Stage, c_int)> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: c_int,
    }
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Sets {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    let header = Header { version: CAPABILITY_VERSION, pid: 0 };
    let mut sets = [Sets::default(); 2];
    // SAFETY: the header and both halves of the sets are what this version of the call reads and writes.
    unsafe {
        if libc::syscall(libc::SYS_capget, &raw const header, sets.as_mut_ptr()) < 0 {
            return Err(last(Stage::Identity));
        }
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of the set")]
        for (half, keep) in sets.iter_mut().zip([keep as u32, (keep >> 32) as u32]) {
            half.permitted &= keep;
            half.effective = half.permitted;
            half.inheritable = 0;
        }
        if libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) < 0 {
            return Err(last(Stage::Identity));
        }
    }
    Ok(())
}

/// # Safety
/// As [`become_program`].
unsafe fn execute(plan: &Plan<'_>) -> (Stage, c_int) {
    let mut denied = false;
    let mut failure = (Stage::Exec, libc::ENOENT);
    for program in &plan.programs {
        if program.is_null() {
            break;
        }
        // SAFETY: the strings end with a zero byte, the arrays with a null pointer.
        unsafe { libc::execve(*program, plan.argv.as_ptr(), plan.envp.as_ptr()) };
        failure = last(Stage::Exec);
        match failure.1 {
            libc::EACCES => denied = true,
            libc::ENOENT | libc::ENOTDIR => {}
            _ => return failure,
        }
    }
    if denied { (Stage::Exec, libc::EACCES) } else { failure }
}
