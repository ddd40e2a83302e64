//! The runner: makes the namespaces and waits. It stays outside the process namespace, so whoever kills it ends all that is in the rig.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Signal, getegid, geteuid, set_parent_process_death_signal};

use crate::privilege;

/// Where rigs have their folders. Not `TMPDIR`, which can be too long for a socket's name.
const FOLDERS: &str = "/tmp";
/// What everyone may read in a rig's folder.
pub(crate) const READABLE: u32 = 0o644;
/// The pipe in the folder that the runner holds open: its end is the runner's end.
pub(crate) const LIFE: &str = "life";

/// Whose end ends the rig, besides the command's and the runner's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tie {
    None,
    /// The thread that started the runner.
    Caller,
}

pub(crate) fn run(command: &[OsString], tie: Tie) -> Result<u8, String> {
    if tie == Tie::Caller {
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| format!("tie to the caller: {e}"))?;
    }
    let folder = Folder::new().map_err(|e| format!("make a folder in `{FOLDERS}`: {e}"))?;
    let _life = folder.life().map_err(|e| format!("make a pipe in `{}`: {e}", folder.0.display()))?;
    enter().map_err(|e| format!("make namespaces: {e}; user namespaces may be switched off here"))?;
    let program = std::env::current_exe().map_err(|e| format!("find the own executable: {e}"))?;
    let status = Command::new(program)
        .arg("init")
        .arg(&folder.0)
        .args(command)
        .status()
        .map_err(|e| format!("start the first process of the namespace: {e}"))?;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    Ok(u8::try_from(code).unwrap_or(u8::MAX))
}

/// Puts this process into new mount and network namespaces, and its children into a new process namespace; as an ordinary user also
/// into a user namespace where it keeps its id.
fn enter() -> std::io::Result<()> {
    let mut flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWPID;
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    if user != 0 {
        flags |= CloneFlags::CLONE_NEWUSER;
    }
    unshare(flags)?;
    if user != 0 {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
        privilege::keep_over_exec()?;
    }
    Ok(mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?)
}

/// The rig's folder, which goes with the runner (or, when that is killed, with the first process of the namespace).
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Self> {
        let path = Path::new(FOLDERS).join(format!("sbr-{:08x}", fastrand::u32(..)));
        fs::create_dir(&path)?;
        let folder = Self(path);
        // Tests run as whoever they are about, and the caller's mask may close it to them.
        fs::set_permissions(&folder.0, Permissions::from_mode(0o755))?;
        Ok(folder)
    }

    fn life(&self) -> std::io::Result<File> {
        let path = self.0.join(LIFE);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        OpenOptions::new().read(true).write(true).open(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
