//! Naming a process so that a later one with the same number is not taken for it.

use rustix::process::Pid;

use crate::error::Error;

/// When the process started, in clock ticks after boot (field 22 of `/proc/<pid>/stat`); `None` where there is none.
pub fn start_time(pid: Pid) -> Result<Option<u64>, Error> {
    Ok(read(pid)?.map(|stat| stat.start_time))
}

/// Whether the process that started at `start_time` under this number still runs. A zombie does not.
pub fn alive(pid: Pid, start_time: u64) -> Result<bool, Error> {
    Ok(read(pid)?.is_some_and(|stat| stat.start_time == start_time && !matches!(stat.state, b'Z' | b'X')))
}

struct Stat {
    state: u8,
    start_time: u64,
}

fn read(pid: Pid) -> Result<Option<Stat>, Error> {
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    match std::fs::read(&path) {
        Ok(text) => match parse(&text) {
            Some(stat) => Ok(Some(stat)),
            None => Err(Error::reason("read the state of a process", path, "unexpected form")),
        },
        Err(cause)
            if cause.kind() == std::io::ErrorKind::NotFound || cause.raw_os_error() == Some(libc::ESRCH) =>
        {
            Ok(None)
        }
        Err(cause) => Err(Error::io("read the state of a process", path, cause)),
    }
}

/// The command name (field 2) may hold anything, `)` and spaces too, so fields are counted from its last `)`.
fn parse(text: &[u8]) -> Option<Stat> {
    let after = text.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&text[after..]).ok()?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    // Field 3 was the state; 22 is eighteen further on.
    let start_time = fields.nth(18)?.parse().ok()?;
    Some(Stat { state, start_time })
}

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing {
    /// State and start of a process.
    pub(crate) fn parsed(text: &[u8]) -> Option<(u8, u64)> {
        super::parse(text).map(|stat| (stat.state, stat.start_time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_full_of_brackets_is_read_over() {
        let mut text = b"7 (a) b) R 1 ".to_vec();
        for n in 5..=21 {
            text.extend(format!("{n} ").bytes());
        }
        text.extend(b"4242 23 24");
        let stat = parse(&text).unwrap();
        assert_eq!((stat.state, stat.start_time), (b'R', 4242));
    }

    #[test]
    fn this_process_lives_and_another_start_time_does_not() {
        let pid = rustix::process::getpid();
        let start = start_time(pid).unwrap().unwrap();
        assert!(alive(pid, start).unwrap());
        assert!(!alive(pid, start + 1).unwrap());
    }
}
