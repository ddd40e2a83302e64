//! Where tests put their files: a file system of the run's own, where root can make one. Tests make and remove whole trees all the time, and an ext4 without
//! a journal looks, for each file that it makes, at every one that was removed a while ago: there a run takes half as long again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::host;

/// Size of the file system, in bytes. The file is sparse: it takes what tests write, some of 2 GiB.
const SIZE: u64 = 16 << 30;

/// Set in the process that is in a mount namespace of its own.
const INSIDE: &str = "SANDBAR_XTASK_MOUNTS";

/// Goes on in a mount namespace of its own, where this user may have one: what is mounted there goes with the last process of the run, however that ends.
pub(crate) fn enter() -> Result<(), String> {
    if !host::is_root() || std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let program = std::env::current_exe().map_err(|e| format!("the path of this program: {e}"))?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).arg(program).args(std::env::args_os().skip(1));
    Err(format!("`unshare` could not be started: {}", command.env(INSIDE, "1").exec()))
}

/// A folder for files of tests; removed at the end.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: PathBuf,
    is_mounted: bool,
}

impl Scratch {
    pub(crate) fn new() -> Result<Self, String> {
        // A short name: paths of sockets are bounded.
        let folder = std::env::temp_dir().join(format!("sbt-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let mut scratch = Self { folder, is_mounted: false };
        if std::env::var_os(INSIDE).is_some() {
            match scratch.mount() {
                Ok(()) => scratch.is_mounted = true,
                Err(why) => eprintln!("xtask: the tests have no file system of their own: {why}"),
            }
        }
        // As the folder for temporary files is.
        let open = fs::Permissions::from_mode(0o1777);
        fs::set_permissions(scratch.path(), open)
            .map_err(|e| format!("{}: {e}", scratch.folder.display()))?;
        Ok(scratch)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }

    fn mount(&self) -> Result<(), String> {
        let image = self.folder.with_extension("ext4");
        let made = fs::File::create_new(&image)
            .and_then(|file| file.set_len(SIZE))
            .map_err(|e| format!("{}: {e}", image.display()))
            .and_then(|()| quietly(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image)))
            // The loop device goes with the mount.
            .and_then(|()| {
                quietly(
                    Command::new("mount").args(["-o", "loop,noinit_itable"]).arg(&image).arg(&self.folder),
                )
            });
        // Nobody needs the name: a file without one goes with the last who has it open.
        let _ = fs::remove_file(&image);
        made
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.is_mounted {
            // Lazily: what a failed test left may have files open.
            let _ = quietly(Command::new("umount").arg("--lazy").arg(&self.folder));
            let _ = fs::remove_dir(&self.folder);
        } else {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Runs a command; what it says is the reason if it fails.
fn quietly(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("`{name}` could not be started: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("`{name}`: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
