use std::str::FromStr;

use crate::value::ValueError;

/// A number of processes and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pids(pub(crate) u32);

/// The most that a control group takes: `PID_MAX_LIMIT` of the kernel on 64 bits (include/linux/threads.h).
const MAX: u32 = 1 << 22;

impl FromStr for Pids {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        // `u32::from_str` takes a leading `+`.
        let number = if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None };
        match number {
            Some(count) if (1..=MAX).contains(&count) => Ok(Self(count)),
            _ => Err(ValueError::new(format!("expected a number from 1 to {MAX}, the most that Linux has"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_would_not_take_is_refused_with_the_range() {
        assert_eq!("1".parse(), Ok(Pids(1)));
        assert_eq!("4194304".parse(), Ok(Pids(4_194_304)));
        for text in ["", "0", "4194305", "4294967295", "99999999999", "-1", "+1", "1k", "ten"] {
            let error = text.parse::<Pids>().unwrap_err().to_string();
            assert!(error.contains("1 to 4194304"), "{text}: {error}");
        }
    }
}
