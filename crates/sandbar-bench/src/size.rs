use crate::bed::Bed;
use crate::row::{Bar, Peer, Row};
use crate::sample::Samples;

const MIB: f64 = 1_048_576.0;

/// The executable's size, and that it needs no other file.
pub(crate) fn executable(bed: &Bed) -> Result<Vec<Row>, String> {
    let file = &bed.executable;
    let bytes = std::fs::read(file).map_err(|why| format!("{}: {why}", file.display()))?;
    let mut size = Samples::default();
    #[expect(clippy::cast_precision_loss, reason = "far below the exact range")]
    size.value(bytes.len() as f64 / MIB, is_static(&bytes));
    Ok(vec![Row::new("size", "the executable, static", "MiB", size, Peer::none(), Bar::AtMost(30.0))])
}

/// Whether an ELF file of 64 bits asks for no interpreter.
fn is_static(file: &[u8]) -> Result<(), String> {
    const INTERPRETER: u64 = 3;
    let number = |at: usize, bytes: usize| {
        let field = file.get(at..at + bytes).ok_or("the executable is cut short")?;
        Ok::<_, String>(field.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)))
    };
    let index = |number: u64| usize::try_from(number).map_err(|why| why.to_string());
    let (table, entry, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for n in 0..count {
        if number(index(table + n * entry)?, 4)? == INTERPRETER {
            return Err("the executable is not static".into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_asks_for_an_interpreter_is_not_static() {
        let mut file = vec![0; 64 + 56];
        (file[32], file[54], file[56], file[64]) = (64, 56, 1, 1);
        assert_eq!(is_static(&file), Ok(()));
        file[64] = 3;
        assert!(is_static(&file).is_err());
        assert!(is_static(&file[..60]).is_err(), "cut short");
    }
}
