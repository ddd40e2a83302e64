//! Asking a program something: within a time, with an end to what is read, and with its process group ended. Only programs that nobody but root and
//! this user can change are asked, since one that leaves its group outlives this.

use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// A program that tells its version does so at once; a loaded machine may need a while.
const BOUND: Duration = Duration::from_secs(10);
/// More than any program says of its version.
const MAX_ANSWER: usize = 16 << 10;

/// What a program said, and how it ended.
pub(super) struct Answer {
    pub(super) said: String,
    pub(super) status: ExitStatus,
}

/// Runs it with an empty environment, and with what it starts in a group of its own, all of which is killed in the end.
pub(super) fn ask(program: &Path, arguments: &[&str]) -> std::io::Result<Answer> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let heard = listen(&mut child, Instant::now() + BOUND);
    // It has not been waited for, so its number is its own.
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let status = child.wait()?;
    heard.map(|said| Answer { said, status })
}

fn listen(child: &mut Child, end: Instant) -> std::io::Result<String> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let Some(mut stdout) = child.stdout.take() else { return Err(Errno::BADF.into()) };
    let mut said = Vec::new();
    loop {
        wait(&mut [PollFd::new(&stdout, PollFlags::IN)], end)?;
        let mut buffer = [0; 4096];
        match stdout.read(&mut buffer)? {
            0 => break,
            length if said.len() + length > MAX_ANSWER => {
                return Err(std::io::Error::other(format!("it says more than {MAX_ANSWER} bytes")));
            }
            length => said.extend_from_slice(&buffer[..length]),
        }
    }
    wait(&mut [PollFd::new(&pidfd.as_fd(), PollFlags::IN)], end)?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

fn wait(fds: &mut [PollFd<'_>], end: Instant) -> std::io::Result<()> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        match poll(fds, Some(&timeout)) {
            Ok(0) => {
                let message = format!("it did not end within {} s", BOUND.as_secs());
                return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, message));
            }
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(cause) => return Err(cause.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_and_how_it_ends_is_told() {
        let answer = ask(Path::new("/bin/sh"), &["-c", "echo hello; exit 3"]).unwrap();
        assert_eq!((answer.said.as_str(), answer.status.code()), ("hello\n", Some(3)));
    }

    #[test]
    fn a_babbler_is_cut_off_and_its_children_end() {
        let start = Instant::now();
        assert!(ask(Path::new("/bin/sh"), &["-c", "sleep 60 & while :; do echo babble; done"]).is_err());
        assert!(start.elapsed() < BOUND);
        assert!(ask(Path::new("/nonexistent-9"), &[]).is_err());
    }
}
