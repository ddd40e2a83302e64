use std::sync::LazyLock;

use super::assemble::{ARCHITECTURE, Instruction, program};
use super::interpret::{Data, interpret, look_up};
use super::policy::SetidBits;

static PROGRAMS: LazyLock<[(SetidBits, Vec<Instruction>); 2]> =
    LazyLock::new(|| [SetidBits::Allowed, SetidBits::Refused].map(|setid| (setid, program(setid))));

/// A call is a byte for its architecture, two or four for its number, and eight for each argument, as far as they go.
pub(crate) fn filter(data: &[u8]) {
    let Some((how, mut rest)) = data.split_first() else { return };
    let mut take = |count: usize| {
        let (bytes, after) = rest.split_at(count.min(rest.len()));
        rest = after;
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let architecture = if *how < 0xf0 { ARCHITECTURE } else { u32::from(*how) << 24 | 0x3e };
    let number = take(if how.is_multiple_of(2) { 2 } else { 4 });
    let call = Data {
        architecture,
        number: u32::try_from(number).unwrap_or_default(),
        arguments: std::array::from_fn(|_| take(8)),
    };
    for (setid, program) in &*PROGRAMS {
        assert_eq!(interpret(program, call), look_up(call, *setid), "{call:?}");
    }
}
