use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::termios::{Pid, Winsize};

use super::Identity;

/// Opens a terminal of that size, owned by whoever is going to use it. The first descriptor is the master, without
/// blocking; the second the terminal itself.
pub(super) fn open(cols: u16, rows: u16, identity: &Identity) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = rustix::fs::open("/dev/ptmx", flags | OFlags::NONBLOCK, Mode::empty())?;
    rustix::pty::unlockpt(&master)?;
    let slave = peer(&master)?;
    resize(&master, cols, rows)?;
    if let Identity::Set { uid, gid, .. } = identity {
        // Without the right to change owners the program can still use the terminal it is given, only not open it
        // again by name.
        let _ = rustix::fs::fchown(&slave, Some(Uid::from_raw(*uid)), Some(Gid::from_raw(*gid)));
        let _ = rustix::fs::fchmod(&slave, Mode::from_raw_mode(0o620));
    }
    Ok((master, slave))
}

/// Opens the terminal without its name, which may not be reachable.
#[expect(unsafe_code, reason = "TIOCGPTPEER returns a descriptor")]
fn peer(master: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the descriptor is open and the request takes an integer.
    let slave = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) };
    if slave < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(slave) })
}

/// Sets a terminal's size in characters; the program in it gets SIGWINCH where that is a change.
pub fn resize(master: &impl AsFd, cols: u16, rows: u16) -> io::Result<()> {
    Ok(rustix::termios::tcsetwinsize(
        master,
        Winsize { ws_col: cols, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 },
    )?)
}

/// The process group that reads from the terminal.
pub fn foreground_group(master: &impl AsFd) -> io::Result<i32> {
    Ok(rustix::termios::tcgetpgrp(master).map(Pid::as_raw_nonzero)?.get())
}
