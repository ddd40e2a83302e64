//! The rules as data. [`super::assemble`] turns them into a program; the tests hold the two against each other.

use std::collections::BTreeMap;

use super::calls::{ALLOWED, FCHMODAT2, LEGACY_ALLOWED, LEGACY_REFUSED, REFUSED, SHARED_ALLOWED};

/// Whether files may get setuid and setgid bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetidBits {
    Allowed,
    /// Where a folder of the host is writable: a program planted there would run as somebody else on the host.
    Refused,
}

/// What a call answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The kernel decides.
    Allow,
    /// This error number, and nothing happens.
    Errno(u16),
}

pub(crate) const EPERM: Verdict = errno(libc::EPERM);
pub(crate) const ENOSYS: Verdict = errno(libc::ENOSYS);

/// Error numbers of Linux are small and positive.
const fn errno(number: i32) -> Verdict {
    assert!(number > 0 && number < 4096);
    Verdict::Errno((number.cast_unsigned() & 0xfff) as u16)
}

/// A rule for one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rule {
    Always(Verdict),
    /// The first case whose tests all hold decides; else `otherwise`.
    Cases {
        cases: Vec<(Vec<Test>, Verdict)>,
        otherwise: Verdict,
    },
}

/// A test of the low 32 bits of an argument: those are all that the kernel looks at for these calls, so what stands in
/// the upper half must not change the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) argument: u8,
    /// Only these bits count.
    pub(crate) mask: u32,
    pub(crate) kind: TestKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestKind {
    Equals(u32),
    /// At least one of the mask's bits is set.
    AnySet,
}

/// Everything that is not in the map answers [`ENOSYS`], so that programs fall back.
pub(crate) fn rules(setid: SetidBits) -> BTreeMap<u32, Rule> {
    let mut rules = BTreeMap::new();
    let mut put = |number: libc::c_long, rule: Rule| {
        if let Ok(number) = u32::try_from(number) {
            rules.insert(number, rule);
        }
    };
    for (_, number) in ALLOWED.iter().chain(LEGACY_ALLOWED).chain(SHARED_ALLOWED) {
        put(*number, Rule::Always(Verdict::Allow));
    }
    for (_, number) in REFUSED.iter().chain(LEGACY_REFUSED) {
        put(*number, Rule::Always(EPERM));
    }
    put(libc::SYS_clone, clone());
    put(libc::SYS_clone3, Rule::Always(ENOSYS));
    put(libc::SYS_socket, socket());
    put(libc::SYS_socketpair, socketpair());
    put(libc::SYS_ioctl, ioctl());
    put(libc::SYS_setsockopt, setsockopt());
    put(libc::SYS_fcntl, fcntl());
    put(libc::SYS_personality, personality());
    put(libc::SYS_prlimit64, prlimit());
    put(libc::SYS_setpriority, priority_of(libc::PRIO_PROCESS));
    put(libc::SYS_ioprio_set, priority_of(IOPRIO_WHO_PROCESS));
    for number in SCHEDULING {
        put(*number, not_of_the_agent());
    }
    if setid == SetidBits::Refused {
        for (number, argument) in MODE_ARGUMENTS {
            put(*number, without_setid(*argument, None));
        }
        for (number, flags) in OPEN_FLAGS {
            put(*number, without_setid(flags + 1, Some(*flags)));
        }
        // Its mode is in memory, where a filter can't look; programs fall back to `openat`.
        put(libc::SYS_openat2, Rule::Always(ENOSYS));
    }
    rules
}

const fn equals(argument: u8, value: u32) -> Test {
    Test { argument, mask: u32::MAX, kind: TestKind::Equals(value) }
}

const fn any(argument: u8, mask: u32) -> Test {
    Test { argument, mask, kind: TestKind::AnySet }
}

/// Flags of `clone` that make namespaces. `CLONE_NEWTIME` is part of the signal number here and means nothing.
const NEW_NAMESPACES: u32 = 0x7e02_0000;

/// `clone` hides nothing in memory, so its flags can be judged; `clone3`'s can't, and it answers [`ENOSYS`].
fn clone() -> Rule {
    Rule::Cases { cases: vec![(vec![any(0, NEW_NAMESPACES)], EPERM)], otherwise: Verdict::Allow }
}

/// From `asm-generic/ioctls.h` and `linux/tty.h`: the same on every architecture we know.
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;

/// `BTRFS_IOC_SNAP_CREATE`, `BTRFS_IOC_SUBVOL_CREATE`, `BTRFS_IOC_SNAP_DESTROY` and their second versions, from `linux/btrfs.h`.
const SUBVOLUMES: [u32; 6] = [0x5000_9401, 0x5000_940e, 0x5000_940f, 0x5000_9417, 0x5000_9418, 0x5000_943f];

/// Requests that put text into a terminal's input, or drive the host's console; and those that make or remove subvolumes in a volume: trees of their own,
/// which may be closed to writing, so that who removes the volume could not empty them.
fn ioctl() -> Rule {
    let request = |value: u32| (vec![equals(1, value)], EPERM);
    let cases = [TIOCSTI, TIOCLINUX].into_iter().chain(SUBVOLUMES).map(request).collect();
    Rule::Cases { cases, otherwise: Verdict::Allow }
}

/// A socket that lingers makes whoever closes it last wait for the other side, for as long as it says. That may be a
/// process of the host's that was handed the descriptor (even one that was on its way, or of a packet it refused), so no
/// socket from inside may have it. What stands in the option's value is in memory, where a filter can't look; so turning
/// it off, and the hard reset of a zero, are refused too. A socket inherits it only from its listener.
fn setsockopt() -> Rule {
    let linger =
        vec![equals(1, libc::SOL_SOCKET.cast_unsigned()), equals(2, libc::SO_LINGER.cast_unsigned())];
    Rule::Cases { cases: vec![(linger, EPERM)], otherwise: Verdict::Allow }
}

/// `F_SETDELEG` of `linux/fcntl.h`, since Linux 6.19.
const F_SETDELEG: u32 = 1024 + 16;

/// The same for files: who opens one that is leased waits until the lease is given back, up to 45 seconds
/// (`fs.lease-break-time`), be it a process of the host's. File servers are what uses them.
fn fcntl() -> Rule {
    let command = |value: u32| (vec![equals(1, value)], EPERM);
    let cases = vec![command(libc::F_SETLEASE.cast_unsigned()), command(F_SETDELEG)];
    Rule::Cases { cases, otherwise: Verdict::Allow }
}

/// A lowered limit can't be raised again, so whoever shares the agent's user could take its descriptors from it for good. A
/// process sets its own limits; `0` stands for itself. What another process' limits are is in its `/proc` folder.
fn prlimit() -> Rule {
    Rule::Cases { cases: vec![(vec![equals(0, 0)], Verdict::Allow)], otherwise: EPERM }
}

/// The process that must go on serving.
const AGENT: u32 = 1;
/// From `linux/ioprio.h`.
const IOPRIO_WHO_PROCESS: u32 = 1;

/// Priorities are given to one process at a time, which is not the agent. Groups and users would include it.
fn priority_of(one_process: u32) -> Rule {
    let one = equals(0, one_process);
    Rule::Cases {
        cases: vec![(vec![one, equals(1, AGENT)], EPERM), (vec![one], Verdict::Allow)],
        otherwise: EPERM,
    }
}

/// Calls that say how a process (the first argument) is scheduled.
const SCHEDULING: &[libc::c_long] = &[
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
];

fn not_of_the_agent() -> Rule {
    Rule::Cases { cases: vec![(vec![equals(0, AGENT)], EPERM)], otherwise: Verdict::Allow }
}

/// The default, two name variants for old programs, no address randomisation (debuggers), and "tell me".
fn personality() -> Rule {
    const NO_RANDOMISATION: u32 = 0x0004_0000;
    let fine = [0, 0x8, 0x2_0000, 0x2_0008, NO_RANDOMISATION, u32::MAX];
    let cases = fine.iter().map(|value| (vec![equals(0, *value)], Verdict::Allow)).collect();
    Rule::Cases { cases, otherwise: EPERM }
}

fn socketpair() -> Rule {
    Rule::Cases {
        cases: vec![(vec![equals(0, libc::AF_UNIX as u32)], Verdict::Allow)],
        otherwise: errno(libc::EOPNOTSUPP),
    }
}

/// The packet type of old; the C library's constant is deprecated.
const SOCK_PACKET: i32 = 10;

/// Families and protocols that a program in a sandbox has use for. Each other family and protocol is a piece of kernel
/// that would be loaded for nothing; the answers are those of a kernel without it.
fn socket() -> Rule {
    // `SOCK_NONBLOCK` and `SOCK_CLOEXEC` stand above the type.
    let kind = |value: i32| Test { argument: 1, mask: 0xf, kind: TestKind::Equals(value.cast_unsigned()) };
    let family = |value: i32| equals(0, value.cast_unsigned());
    let protocol = |value: i32| equals(2, value.cast_unsigned());
    let mut cases = vec![(vec![family(libc::AF_UNIX)], Verdict::Allow)];
    for inet in [libc::AF_INET, libc::AF_INET6] {
        cases.push((vec![family(inet), kind(libc::SOCK_RAW)], EPERM));
        cases.push((vec![family(inet), kind(SOCK_PACKET)], EPERM));
        for known in [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6] {
            cases.push((vec![family(inet), kind(libc::SOCK_STREAM), protocol(known)], Verdict::Allow));
            cases.push((vec![family(inet), kind(libc::SOCK_DGRAM), protocol(known)], Verdict::Allow));
        }
        cases.push((vec![family(inet)], errno(libc::EPROTONOSUPPORT)));
    }
    // Listing interfaces and addresses.
    cases.push((vec![family(libc::AF_NETLINK), protocol(libc::NETLINK_ROUTE)], Verdict::Allow));
    cases.push((vec![family(libc::AF_NETLINK)], errno(libc::EPROTONOSUPPORT)));
    for dangerous in [libc::AF_PACKET, libc::AF_ALG, libc::AF_VSOCK] {
        cases.push((vec![family(dangerous)], EPERM));
    }
    Rule::Cases { cases, otherwise: errno(libc::EAFNOSUPPORT) }
}

const SETID: u32 = libc::S_ISUID | libc::S_ISGID;
const MAKES_FILE: u32 = (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u32;

/// Calls and which of their arguments is a mode that sticks.
const MODE_ARGUMENTS: &[(libc::c_long, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    (libc::SYS_mknodat, 2),
];

/// Calls and which of their arguments are flags; the mode follows, and counts only where a file is made.
const OPEN_FLAGS: &[(libc::c_long, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
    (libc::SYS_openat, 2),
];

fn without_setid(mode: u8, flags: Option<u8>) -> Rule {
    let mut tests = vec![any(mode, SETID)];
    if let Some(flags) = flags {
        tests.push(any(flags, MAKES_FILE));
    }
    Rule::Cases { cases: vec![(tests, EPERM)], otherwise: Verdict::Allow }
}
