//! Limits that this machine can't give: more than it has, or less than a sandbox takes to start one command.

use rustix::system::sysinfo;
use sandbar_core::{Error, Resources, Result};
use sandbar_engine::MIN_CPUS_MILLI;

use crate::config::BACKEND;

/// Least limit on processes and threads: the agent has two, and the command is the third.
const LEAST_PIDS: u32 = 3;
/// Where the kernel lists the processors that work, as `0-3,8`.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// What there is to be given. What could not be seen refuses nothing.
#[derive(Clone, Copy, Debug)]
struct Machine {
    memory_bytes: Option<u64>,
    processors: Option<u32>,
}

/// Refuses limits that would be kept in name only.
pub(crate) fn check(operation: &'static str, asked: &Resources) -> Result<()> {
    let info = sysinfo();
    #[expect(clippy::useless_conversion, reason = "the kernel's word is as wide as the machine's")]
    let memory = u64::from(info.totalram).checked_mul(u64::from(info.mem_unit));
    let machine = Machine {
        memory_bytes: memory.filter(|bytes| *bytes > 0),
        processors: std::fs::read_to_string(ONLINE).ok().and_then(|text| count(&text)),
    };
    match refusal(asked, machine) {
        Some(why) => Err(Error::invalid(operation, why).with_backend(BACKEND)),
        None => Ok(()),
    }
}

fn refusal(asked: &Resources, machine: Machine) -> Option<String> {
    let Resources { memory_bytes, cpu_millis, pids, disk_bytes: _ } = *asked;
    if let (Some(asked), Some(has)) = (memory_bytes, machine.memory_bytes)
        && asked > has
    {
        return Some(format!(
            "a memory limit of {asked} bytes is more than this machine has: expected at most {has}"
        ));
    }
    if let Some(asked) = cpu_millis {
        if asked < MIN_CPUS_MILLI {
            return Some(format!(
                "a processor limit of {asked} thousandths is not valid: expected at least {MIN_CPUS_MILLI}"
            ));
        }
        if let Some(has) = machine.processors
            && asked > has.saturating_mul(1000)
        {
            return Some(format!(
                "a limit of {} processors is more than this machine has: expected at most {has}",
                f64::from(asked) / 1000.0
            ));
        }
    }
    pids.filter(|pids| *pids < LEAST_PIDS).map(|pids| {
        format!(
            "a limit of {pids} on processes leaves no room for a command: expected at least {LEAST_PIDS}, \
             since two are Sandbar's own"
        )
    })
}

/// How many processors such a list has.
fn count(online: &str) -> Option<u32> {
    online.trim().split(',').try_fold(0_u32, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_more_than_there_is_or_too_little_is_refused() {
        let machine = Machine { memory_bytes: Some(1 << 30), processors: Some(2) };
        let blind = Machine { memory_bytes: None, processors: None };
        let ask = Resources::default;
        for (asked, named) in [
            (ask().with_memory_bytes((1 << 30) + 1), Some("1073741824")),
            (ask().with_memory_bytes(1 << 30), None),
            (ask().with_cpu_millis(2001), Some("2.001 processors")),
            (ask().with_cpu_millis(2000), None),
            (ask().with_cpu_millis(9), Some("at least 10")),
            (ask().with_pids(2), Some("at least 3")),
            (ask().with_pids(3), None),
            (ask(), None),
        ] {
            let why = refusal(&asked, machine);
            assert_eq!(why.is_some(), named.is_some(), "{asked:?}: {why:?}");
            assert!(why.is_none_or(|why| why.contains(named.unwrap())), "{asked:?}");
        }
        assert_eq!(refusal(&ask().with_memory_bytes(u64::MAX).with_cpu_millis(u32::MAX), blind), None);
        assert!(check("create", &ask().with_memory_bytes(u64::MAX)).is_err());
        assert!(check("create", &ask().with_cpu_millis(u32::MAX)).is_err());
    }

    #[test]
    fn processors_are_counted_as_the_kernel_lists_them() {
        assert_eq!(count("0-3,8\n"), Some(5));
        assert_eq!(count("0\n"), Some(1));
        for odd in ["", "3-1", "a", "0-4294967295"] {
            assert_eq!(count(odd), None, "{odd}");
        }
    }
}
