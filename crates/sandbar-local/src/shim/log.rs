use std::io::Write;
use std::os::fd::OwnedFd;

use tokio::net::unix::pipe::Receiver;

use crate::home::Folder;

const SHIM_LOG: &str = "shim.log";
const AGENT_LOG: &str = "agent.log";
/// Most bytes kept of what the agent says, which may be what an attacker says; the rest is read and dropped, so that nobody is blocked.
const MAX_AGENT_LOG: usize = 256 << 10;

/// Sends the shim's own standard error (a panic, most likely) to its log. Without a log it goes nowhere.
pub(super) fn redirect(folder: &Folder) {
    if let Ok(log) = folder.open_log(SHIM_LOG) {
        let _ = rustix::stdio::dup2_stderr(&log);
    }
}

/// Says something in the shim's own log. On a full disk it is lost: `eprintln!` would end the shim, and with it what it is in the middle of.
pub(super) fn say(what: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "sandbar-shim: {what}");
}

/// Keeps what the agent says, until it says nothing more.
pub(super) async fn keep(
    folder: std::sync::Arc<super::shared::Shared>,
    pipe: OwnedFd,
) -> std::io::Result<()> {
    rustix::io::ioctl_fionbio(&pipe, true)?;
    let pipe = Receiver::from_owned_fd(pipe)?;
    let mut left = MAX_AGENT_LOG;
    let mut chunk = [0; 4096];
    loop {
        pipe.readable().await?;
        match pipe.try_read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(got) if left > 0 => {
                let kept = got.min(left);
                left -= kept;
                let log = folder.folder.open_log(AGENT_LOG)?;
                rustix::io::write(&log, &chunk[..kept])?;
            }
            Ok(_) => {}
            Err(cause) if cause.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(cause) => return Err(cause),
        }
    }
}

/// The end of what the agent said, for an error.
pub(super) fn last_words(folder: &Folder) -> Option<String> {
    let text = std::fs::read(folder.socket(AGENT_LOG)).ok()?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(line.chars().filter(|c| !c.is_control()).take(300).collect())
}
