use super::assemble::{
    AND, ARCHITECTURE, AT_ARCHITECTURE, AT_ARGUMENTS, AT_NUMBER, Instruction, JUMP, JUMP_ANY_SET,
    JUMP_AT_LEAST, JUMP_EQUAL, LOAD, RETURN, RETURN_ALLOW, RETURN_ERRNO, X32,
};
use super::policy::{ENOSYS, Rule, SetidBits, Test, TestKind, Verdict, rules};

/// `struct seccomp_data` as far as the filter looks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Data {
    pub(super) architecture: u32,
    pub(super) number: u32,
    pub(super) arguments: [u64; 6],
}

impl Data {
    fn word(&self, offset: u32) -> u32 {
        match offset {
            AT_NUMBER => self.number,
            AT_ARCHITECTURE => self.architecture,
            offset => {
                let bytes = offset - AT_ARGUMENTS;
                assert!(bytes.is_multiple_of(8), "only low halves are looked at");
                low_half(self.arguments[bytes as usize / 8])
            }
        }
    }
}

pub(super) fn low_half(argument: u64) -> u32 {
    u32::try_from(argument & u64::from(u32::MAX)).unwrap_or_default()
}

/// Runs the program as the kernel would; it must stay within bounds and return.
pub(super) fn interpret(program: &[Instruction], data: Data) -> u32 {
    let (mut at, mut accumulator) = (0_usize, 0_u32);
    loop {
        let Instruction { code, jump_true, jump_false, k } = program[at];
        at += 1;
        let choose = |holds: bool| usize::from(if holds { jump_true } else { jump_false });
        match code {
            LOAD => accumulator = data.word(k),
            AND => accumulator &= k,
            JUMP => at += k as usize,
            JUMP_EQUAL => at += choose(accumulator == k),
            JUMP_AT_LEAST => at += choose(accumulator >= k),
            JUMP_ANY_SET => at += choose(accumulator & k != 0),
            RETURN => return k,
            other => panic!("unknown operation {other:#x}"),
        }
    }
}

/// What the table says, read without a program.
pub(super) fn look_up(data: Data, setid: SetidBits) -> u32 {
    let verdict = if data.architecture != ARCHITECTURE || data.number & X32 != 0 {
        ENOSYS
    } else {
        match rules(setid).get(&data.number) {
            None => ENOSYS,
            Some(Rule::Always(verdict)) => *verdict,
            Some(Rule::Cases { cases, otherwise }) => {
                let case = cases.iter().find(|(tests, _)| tests.iter().all(|test| holds(test, data)));
                case.map_or(*otherwise, |(_, verdict)| *verdict)
            }
        }
    };
    match verdict {
        Verdict::Allow => RETURN_ALLOW,
        Verdict::Errno(errno) => RETURN_ERRNO | u32::from(errno),
    }
}

fn holds(test: &Test, data: Data) -> bool {
    let word = low_half(data.arguments[usize::from(test.argument)]) & test.mask;
    match test.kind {
        TestKind::Equals(value) => word == value,
        TestKind::AnySet => word != 0,
    }
}
