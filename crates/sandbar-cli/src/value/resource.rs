use std::str::FromStr;

use crate::value::{Size, ValueError};

/// A memory limit in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory(pub(crate) u64);

/// A limit on writable disk space in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disk(pub(crate) u64);

/// A sandbox comes up in a quarter of it where its pages are shared with others, and in 4 KiB it does not; this is for sure.
const MIN_MEMORY: u64 = 4 << 20;
/// What a sandbox writes before its first command, with room for that command to write anything.
const MIN_DISK: u64 = 1 << 20;
/// Sizes of files and counts of memory pages are signed in the kernel (`loff_t`, `PAGE_COUNTER_MAX`): it takes more for no limit at all.
const MAX: u64 = (1 << 63) - 4096;

impl FromStr for Memory {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let Size(bytes) = text.parse()?;
        within(bytes, MIN_MEMORY, "4M", "the first processes of a sandbox do not start for sure in less")
            .map(Self)
    }
}

impl FromStr for Disk {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let Size(bytes) = text.parse()?;
        within(bytes, MIN_DISK, "1M", "what an empty sandbox holds would nearly fill it").map(Self)
    }
}

fn within(bytes: u64, least: u64, least_text: &str, why: &str) -> Result<u64, ValueError> {
    if bytes < least {
        return Err(ValueError::new(format!("less than {least_text}: {why}")));
    }
    if bytes > MAX {
        return Err(ValueError::new(format!(
            "more than {MAX} bytes, which is no limit at all to the kernel"
        )));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_nothing_could_live_in_are_refused_with_the_reason() {
        assert_eq!("4M".parse(), Ok(Memory(4 << 20)));
        assert_eq!("1M".parse(), Ok(Disk(1 << 20)));
        assert_eq!(MAX.to_string().parse(), Ok(Memory(MAX)));
        for text in ["1", "4194303", "1K"] {
            let error = text.parse::<Memory>().unwrap_err().to_string();
            assert!(error.contains("less than 4M") && error.contains("do not start"), "{error}");
        }
        assert!("1023K".parse::<Disk>().unwrap_err().to_string().contains("less than 1M"));
        assert!("18446744073709551615".parse::<Memory>().unwrap_err().to_string().contains("no limit"));
        assert!("9223372036854771713".parse::<Disk>().unwrap_err().to_string().contains("no limit"));
        assert!("12q".parse::<Memory>().unwrap_err().to_string().contains("unknown unit"));
    }
}
