//! Paths in `/proc` and numbers, without allocating.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::Pid;

/// Longest path here: `/proc/<pid>/task/<tid>/fdinfo` with numbers of ten digits.
const BYTES: usize = 64;

/// A path that is put together on the stack.
pub(super) struct Path {
    bytes: [u8; BYTES],
    length: usize,
}

impl Path {
    /// `/proc/<pid>/`.
    pub(super) fn process(pid: Pid) -> Self {
        Self { bytes: [0; BYTES], length: 0 }.with(b"/proc/").number(pid.as_raw_nonzero().get()).with(b"/")
    }

    /// Adds a piece. One that does not fit is left out, and then the path names nothing.
    pub(super) fn with(mut self, piece: &[u8]) -> Self {
        if let Some(room) = self.bytes.get_mut(self.length..self.length + piece.len()) {
            room.copy_from_slice(piece);
            self.length += piece.len();
        }
        self
    }

    /// Adds a number that is not negative.
    pub(super) fn number(self, number: i32) -> Self {
        let mut digits = [0; 10];
        let (mut rest, mut at) = (number.unsigned_abs(), digits.len());
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.with(&digits[at..])
    }

    pub(super) fn as_c_str(&self) -> &CStr {
        // Without room for the final zero it names nothing.
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

/// The number that a name is, if it is one.
pub(crate) fn number(name: &CStr) -> Option<i32> {
    let digits = name.to_bytes();
    // `i32::from_str` takes a sign, and zeros before the number: the kernel writes neither.
    let plain = digits.iter().all(u8::is_ascii_digit) && (digits.len() == 1 || digits.first() != Some(&b'0'));
    std::str::from_utf8(digits).ok().filter(|_| plain)?.parse().ok()
}

/// The root folder of a process; `None` if the process is gone.
pub(super) fn open_root(pid: Pid) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    gone(openat(CWD, Path::process(pid).with(b"root").as_c_str(), flags, Mode::empty()))
}

/// Takes the end of a process for nothing to look at.
pub(super) fn gone<T>(looked: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match looked {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT | Errno::SRCH) => Ok(None),
        Err(cause) => Err(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_numbers() {
        let pid = Pid::from_raw(i32::MAX).unwrap();
        let path = Path::process(pid).with(b"task/").number(i32::MAX).with(b"/fdinfo");
        assert_eq!(path.as_c_str(), c"/proc/2147483647/task/2147483647/fdinfo");
        assert_eq!(Path::process(Pid::INIT).number(0).as_c_str(), c"/proc/1/0");
        assert_eq!((number(c"17"), number(c"."), number(c"x")), (Some(17), None, None));
        assert_eq!((number(c"0"), number(c"-1"), number(c"+1"), number(c"01")), (Some(0), None, None, None));
    }
}
