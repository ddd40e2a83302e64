use std::sync::LazyLock;

use proptest::prelude::*;

use super::assemble::{ARCHITECTURE, Instruction, RETURN, RETURN_ALLOW, RETURN_ERRNO, program};
use super::calls::{ALLOWED, LEGACY_ALLOWED, LEGACY_REFUSED, REFUSED, SHARED_ALLOWED};
use super::interpret::{Data, interpret, look_up, low_half};
use super::policy::SetidBits;

impl Data {
    fn call(number: libc::c_long, arguments: &[u64]) -> Self {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        Self { architecture: ARCHITECTURE, number: u32::try_from(number).unwrap(), arguments: all }
    }
}

/// The same decision written down slowly and separately from the rules.
fn oracle(data: Data, setid: SetidBits) -> u32 {
    let errno = |errno: i32| RETURN_ERRNO | u32::try_from(errno).unwrap();
    let low = |n: usize| low_half(data.arguments[n]);
    if data.architecture != ARCHITECTURE || data.number & 0x4000_0000 != 0 {
        return errno(libc::ENOSYS);
    }
    let number = i64::from(data.number);
    let in_list = |list: &[(&str, libc::c_long)]| list.iter().any(|(_, known)| *known == number);
    let setid_refused = setid == SetidBits::Refused;
    let sticks = |mode: usize| low(mode) & 0o6000 != 0;
    let makes = |flags: usize| low(flags) & 0x0040_0040 != 0;
    match number {
        libc::SYS_clone3 => return errno(libc::ENOSYS),
        libc::SYS_clone if low(0) & 0x7e02_0000 != 0 => return errno(libc::EPERM),
        libc::SYS_clone => return RETURN_ALLOW,
        libc::SYS_ioctl if is_refused_request(low(1)) => return errno(libc::EPERM),
        libc::SYS_ioctl => return RETURN_ALLOW,
        libc::SYS_setsockopt if low(1) == 1 && low(2) == 13 => return errno(libc::EPERM),
        libc::SYS_fcntl if matches!(low(1), 1024 | 1040) => return errno(libc::EPERM),
        libc::SYS_setsockopt | libc::SYS_fcntl => return RETURN_ALLOW,
        libc::SYS_personality => {
            let fine = matches!(low(0), 0 | 8 | 0x2_0000 | 0x2_0008 | 0x4_0000 | 0xffff_ffff);
            return if fine { RETURN_ALLOW } else { errno(libc::EPERM) };
        }
        libc::SYS_prlimit64 => return if low(0) == 0 { RETURN_ALLOW } else { errno(libc::EPERM) },
        libc::SYS_setpriority | libc::SYS_ioprio_set => {
            let one_process = u32::from(number == libc::SYS_ioprio_set);
            let fine = low(0) == one_process && low(1) != 1;
            return if fine { RETURN_ALLOW } else { errno(libc::EPERM) };
        }
        libc::SYS_sched_setaffinity
        | libc::SYS_sched_setattr
        | libc::SYS_sched_setparam
        | libc::SYS_sched_setscheduler => {
            return if low(0) == 1 { errno(libc::EPERM) } else { RETURN_ALLOW };
        }
        libc::SYS_socketpair => return if low(0) == 1 { RETURN_ALLOW } else { errno(libc::EOPNOTSUPP) },
        libc::SYS_socket => {
            let (kind, protocol) = (low(1) & 0xf, low(2));
            return match low(0) {
                1 => RETURN_ALLOW,
                2 | 10 if matches!(kind, 3 | 10) => errno(libc::EPERM),
                2 | 10 if matches!(kind, 1 | 2) && matches!(protocol, 0 | 1 | 6 | 17 | 58) => RETURN_ALLOW,
                16 if protocol == 0 => RETURN_ALLOW,
                2 | 10 | 16 => errno(libc::EPROTONOSUPPORT),
                17 | 38 | 40 => errno(libc::EPERM),
                _ => errno(libc::EAFNOSUPPORT),
            };
        }
        libc::SYS_openat2 if setid_refused => return errno(libc::ENOSYS),
        libc::SYS_fchmod if setid_refused && sticks(1) => return errno(libc::EPERM),
        libc::SYS_fchmodat | libc::SYS_mknodat | 452 if setid_refused && sticks(2) => {
            return errno(libc::EPERM);
        }
        libc::SYS_openat if setid_refused && makes(2) && sticks(3) => return errno(libc::EPERM),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod | libc::SYS_creat | libc::SYS_mknod if setid_refused && sticks(1) => {
            return errno(libc::EPERM);
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open if setid_refused && makes(1) && sticks(2) => return errno(libc::EPERM),
        _ => {}
    }
    if in_list(ALLOWED) || in_list(LEGACY_ALLOWED) || in_list(SHARED_ALLOWED) {
        RETURN_ALLOW
    } else if in_list(REFUSED) || in_list(LEGACY_REFUSED) {
        errno(libc::EPERM)
    } else {
        errno(libc::ENOSYS)
    }
}

fn argument() -> impl Strategy<Value = u64> {
    prop_oneof![
        0_u64..64,
        Just(1024),
        Just(1040),
        Just(0x5412),
        Just(0x541c),
        Just(0xffff_ffff_0000_5412),
        Just(0x1000_0000),
        Just(0x4_0000),
        Just(0o104_755),
        Just(0o2755),
        Just(0o101),
        Just(u64::MAX),
        any::<u64>(),
    ]
}

fn data() -> impl Strategy<Value = Data> {
    let architecture = prop_oneof![20 => Just(ARCHITECTURE), 1 => Just(0x4000_0003_u32), 1 => any::<u32>()];
    let special = prop::sample::select(vec![
        libc::SYS_clone,
        libc::SYS_socket,
        libc::SYS_socketpair,
        libc::SYS_ioctl,
        libc::SYS_personality,
        libc::SYS_setsockopt,
        libc::SYS_fcntl,
        libc::SYS_prlimit64,
        libc::SYS_setpriority,
        libc::SYS_ioprio_set,
        libc::SYS_sched_setaffinity,
        libc::SYS_openat,
        libc::SYS_openat2,
        libc::SYS_fchmod,
        libc::SYS_fchmodat,
        libc::SYS_mknodat,
        libc::SYS_clone3,
    ])
    .prop_map(|number| u32::try_from(number).unwrap());
    let number =
        prop_oneof![4 => special, 4 => 0_u32..520, 1 => 0x4000_0000_u32..0x4000_0300, 1 => any::<u32>()];
    (architecture, number, prop::array::uniform6(argument()))
        .prop_map(|(architecture, number, arguments)| Data { architecture, number, arguments })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_program_decides_as_the_oracle(data in data()) {
        for (setid, program) in &*PROGRAMS {
            prop_assert_eq!(interpret(program, data), oracle(data, *setid));
            prop_assert_eq!(look_up(data, *setid), oracle(data, *setid));
        }
    }
}

static PROGRAMS: LazyLock<[(SetidBits, Vec<Instruction>); 2]> =
    LazyLock::new(|| [SetidBits::Allowed, SetidBits::Refused].map(|setid| (setid, program(setid))));

#[test]
fn every_number_decides_as_the_oracle() {
    for setid in [SetidBits::Allowed, SetidBits::Refused] {
        let program = program(setid);
        for number in (0..2048).chain(0x4000_0000..0x4000_0800).chain(u32::MAX - 16..=u32::MAX) {
            let data = Data { architecture: ARCHITECTURE, number, arguments: [0; 6] };
            assert_eq!(interpret(&program, data), oracle(data, setid), "{number}");
        }
    }
}

#[test]
fn it_kills_nothing_and_fits_the_kernel() {
    // BPF_MAXINSNS of `linux/bpf_common.h`.
    const MOST: usize = 4096;
    for setid in [SetidBits::Allowed, SetidBits::Refused] {
        let program = program(setid);
        assert!(program.len() < MOST, "{}", program.len());
        for instruction in program.iter().filter(|i| i.code == RETURN) {
            assert!(instruction.k == RETURN_ALLOW || instruction.k & 0xffff_0000 == RETURN_ERRNO);
        }
    }
}

/// Terminals', and those of subvolumes; what shares the bytes of files is of the same family and fine.
fn is_refused_request(request: u32) -> bool {
    let of_subvolumes = request >> 8 == 0x50_0094 && matches!(request & 0xff, 1 | 14 | 15 | 23 | 24 | 63);
    matches!(request, 0x5412 | 0x541c) || of_subvolumes
}

#[test]
fn no_subvolume_is_made_or_removed_inside() {
    let program = program(SetidBits::Allowed);
    let answer = |request| interpret(&program, Data::call(libc::SYS_ioctl, &[3, request]));
    for refused in [0x5000_9401, 0x5000_940e, 0x5000_940f, 0x5000_9417, 0x5000_9418, 0x5000_943f] {
        assert_eq!(answer(refused), RETURN_ERRNO | 1, "{refused:x}");
    }
    // `FICLONE`, `FICLONERANGE`, `FIDEDUPERANGE`.
    for fine in [0x4004_9409, 0x4020_940d, 0xc018_9436] {
        assert_eq!(answer(fine), RETURN_ALLOW, "{fine:x}");
    }
}

#[test]
fn the_upper_half_of_a_request_changes_nothing() {
    let program = program(SetidBits::Allowed);
    for upper in [0, 1, u32::MAX] {
        let request = u64::from(upper) << 32 | 0x5412;
        let answer = interpret(&program, Data::call(libc::SYS_ioctl, &[0, request]));
        assert_eq!(answer, RETURN_ERRNO | 1);
    }
}

#[test]
fn nothing_from_inside_makes_a_closer_or_opener_wait() {
    let program = program(SetidBits::Allowed);
    let refused = RETURN_ERRNO | 1;
    let wide = |upper: u64, low: i32| upper << 32 | u64::from(low.cast_unsigned());
    for upper in [0, 1, u64::from(u32::MAX)] {
        let linger = [3, wide(upper, libc::SOL_SOCKET), wide(upper, libc::SO_LINGER)];
        assert_eq!(interpret(&program, Data::call(libc::SYS_setsockopt, &linger)), refused);
        let lease = [3, wide(upper, libc::F_SETLEASE)];
        assert_eq!(interpret(&program, Data::call(libc::SYS_fcntl, &lease)), refused);
    }
    let other = |level: i32, option: i32| [3, wide(0, level), wide(0, option)];
    for fine in [other(libc::SOL_SOCKET, libc::SO_REUSEADDR), other(libc::IPPROTO_TCP, libc::SO_LINGER)] {
        assert_eq!(interpret(&program, Data::call(libc::SYS_setsockopt, &fine)), RETURN_ALLOW);
    }
    for command in [libc::F_DUPFD_CLOEXEC, libc::F_SETFL, libc::F_SETLK, libc::F_ADD_SEALS] {
        assert_eq!(interpret(&program, Data::call(libc::SYS_fcntl, &[3, wide(0, command)])), RETURN_ALLOW);
    }
}

#[test]
fn what_is_counted_for_the_whole_machine_is_unknown() {
    let program = program(SetidBits::Allowed);
    for number in [
        libc::SYS_io_setup,
        libc::SYS_io_destroy,
        libc::SYS_io_submit,
        libc::SYS_io_cancel,
        libc::SYS_io_getevents,
    ] {
        let answer = interpret(&program, Data::call(number, &[]));
        assert_eq!(answer, RETURN_ERRNO | u32::try_from(libc::ENOSYS).unwrap());
    }
}
