use std::collections::BTreeMap;

use super::policy::{ENOSYS, Rule, SetidBits, Test, TestKind, Verdict, rules};

/// `struct sock_filter` of the kernel.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(super) code: u16,
    pub(super) jump_true: u8,
    pub(super) jump_false: u8,
    pub(super) k: u32,
}

// Operation codes, from `linux/bpf_common.h`: class, size and mode or operation and source, put together.
pub(super) const LOAD: u16 = 0x20;
pub(super) const AND: u16 = 0x54;
pub(super) const RETURN: u16 = 0x06;
pub(super) const JUMP: u16 = 0x05;
pub(super) const JUMP_EQUAL: u16 = 0x15;
pub(super) const JUMP_AT_LEAST: u16 = 0x35;
pub(super) const JUMP_ANY_SET: u16 = 0x45;

// Offsets in `struct seccomp_data`.
pub(super) const AT_NUMBER: u32 = 0;
pub(super) const AT_ARCHITECTURE: u32 = 4;
/// The low half of the first argument; both architectures we know put it first.
pub(super) const AT_ARGUMENTS: u32 = 16;

pub(super) const RETURN_ALLOW: u32 = 0x7fff_0000;
pub(super) const RETURN_ERRNO: u32 = 0x0005_0000;

/// `AUDIT_ARCH_X86_64` and `AUDIT_ARCH_AARCH64` of `linux/audit.h`.
#[cfg(target_arch = "x86_64")]
pub(super) const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub(super) const ARCHITECTURE: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the system call filter knows x86_64 and aarch64");

/// Calls of the x32 form have this bit in their number.
pub(super) const X32: u32 = 0x4000_0000;

/// The filter as the kernel runs it: architecture first, then a search tree over the numbers.
pub(crate) fn program(setid: SetidBits) -> Vec<Instruction> {
    let mut program = vec![
        statement(LOAD, AT_ARCHITECTURE),
        jump(JUMP_EQUAL, ARCHITECTURE, 1, 0),
        answer(ENOSYS),
        statement(LOAD, AT_NUMBER),
        jump(JUMP_ANY_SET, X32, 0, 1),
        answer(ENOSYS),
    ];
    program.extend(tree(&ranges(&rules(setid))));
    program
}

/// The first number of each run of numbers with the same rule, and that rule.
fn ranges(rules: &BTreeMap<u32, Rule>) -> Vec<(u32, Rule)> {
    let unknown = Rule::Always(ENOSYS);
    let mut ranges = vec![(0, unknown.clone())];
    let mut next = 0;
    let mut put = |start: u32, rule: &Rule| match ranges.last_mut() {
        Some((_, last)) if last == rule => {}
        Some((at, last)) if *at == start => *last = rule.clone(),
        _ => ranges.push((start, rule.clone())),
    };
    for (number, rule) in rules {
        if *number > next {
            put(next, &unknown);
        }
        put(*number, rule);
        next = number + 1;
    }
    put(next, &unknown);
    ranges
}

/// A search tree with the number in the accumulator. Every path ends in a return.
fn tree(ranges: &[(u32, Rule)]) -> Vec<Instruction> {
    if let [(_, rule)] = ranges {
        return leaf(rule);
    }
    let (low, high) = ranges.split_at(ranges.len() / 2);
    let pivot = high[0].0;
    let (low, high) = (tree(low), tree(high));
    // Conditional jumps reach 255 instructions, so the far side is reached through one that has 32 bits.
    let mut program = vec![jump(JUMP_AT_LEAST, pivot, 0, 1), statement(JUMP, length(&low))];
    program.extend(low);
    program.extend(high);
    program
}

fn leaf(rule: &Rule) -> Vec<Instruction> {
    match rule {
        Rule::Always(verdict) => vec![answer(*verdict)],
        Rule::Cases { cases, otherwise } => {
            let mut program = Vec::new();
            for (tests, verdict) in cases {
                program.extend(case(tests, *verdict));
            }
            program.push(answer(*otherwise));
            program
        }
    }
}

/// Falls out of its end where a test does not hold.
fn case(tests: &[Test], verdict: Verdict) -> Vec<Instruction> {
    let mut program = vec![answer(verdict)];
    for test in tests.iter().rev() {
        let mut step = vec![statement(LOAD, AT_ARGUMENTS + 8 * u32::from(test.argument))];
        let skip = u8::try_from(program.len()).unwrap_or(u8::MAX);
        match test.kind {
            TestKind::Equals(value) => {
                if test.mask != u32::MAX {
                    step.push(statement(AND, test.mask));
                }
                step.push(jump(JUMP_EQUAL, value, 0, skip));
            }
            TestKind::AnySet => step.push(jump(JUMP_ANY_SET, test.mask, 0, skip)),
        }
        step.extend(program);
        program = step;
    }
    program
}

fn answer(verdict: Verdict) -> Instruction {
    match verdict {
        Verdict::Allow => statement(RETURN, RETURN_ALLOW),
        Verdict::Errno(errno) => statement(RETURN, RETURN_ERRNO | u32::from(errno)),
    }
}

fn statement(code: u16, k: u32) -> Instruction {
    Instruction { code, jump_true: 0, jump_false: 0, k }
}

fn jump(code: u16, k: u32, jump_true: u8, jump_false: u8) -> Instruction {
    Instruction { code, jump_true, jump_false, k }
}

fn length(program: &[Instruction]) -> u32 {
    u32::try_from(program.len()).unwrap_or(u32::MAX)
}
