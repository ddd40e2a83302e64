//! The first process of the rig's process namespace: mounts, starts the services, then the command, and reaps. At its end the kernel
//! ends all the others.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio, exit};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::mount::{MountFlags, mount, mount_bind};
use rustix::process::{Pid, WaitOptions, WaitStatus, wait};
use sandbar_rig::{FOLDER, RESOLVER};

use crate::serve::AUTHORITY;
use crate::{network, privilege, run, serve};

/// The list of authorities that this system trusts. Where there is none, none can be added.
const TRUSTED: &str = "/etc/ssl/certs/ca-certificates.crt";
/// As shells say it.
const NOT_FOUND: u8 = 127;

pub(crate) fn init(arguments: &[OsString]) -> Result<u8, String> {
    let [folder, command @ ..] = arguments else { return Err("`init` takes a folder".to_owned()) };
    let folder = PathBuf::from(folder);
    end_with_runner(&folder).map_err(|e| format!("watch the runner: {e}"))?;
    mounts(&folder)?;
    network::prepare_host()?;
    let services = services(&folder)?;
    trust(&folder)?;
    privilege::drop_at_exec().map_err(|e| format!("drop capabilities: {e}"))?;
    let [program, arguments @ ..] = command else { return Err("no command".to_owned()) };
    let code = match Command::new(program).args(arguments).env(FOLDER, &folder).spawn() {
        Ok(child) => reap(&child, &services)?,
        Err(e) => {
            eprintln!("sandbar-rig: start `{}`: {e}", program.display());
            NOT_FOUND
        }
    };
    Ok(code)
}

/// Ends this process, and so all others of the namespace, when the runner is gone.
fn end_with_runner(folder: &Path) -> std::io::Result<()> {
    // Not blocking: the runner may be gone already, and then nobody ever opens the other end.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let mut life = File::options().read(true).custom_flags(flags).open(folder.join(run::LIFE))?;
    let folder = folder.to_owned();
    std::thread::Builder::new().name("life".to_owned()).spawn(move || {
        loop {
            match life.read(&mut [0]) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    let _ = poll(&mut [PollFd::new(&life, PollFlags::IN)], None);
                }
                _ => break,
            }
        }
        let _ = fs::remove_dir_all(&folder);
        exit(1);
    })?;
    Ok(())
}

fn mounts(folder: &Path) -> Result<(), String> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(|e| format!("mount `/proc`: {e}"))?;
    let file = folder.join("resolv.conf");
    fs::write(&file, format!("nameserver {RESOLVER}\noptions timeout:1 attempts:2\n"))
        .map_err(|e| format!("write `{}`: {e}", file.display()))?;
    fs::set_permissions(&file, Permissions::from_mode(run::READABLE))
        .map_err(|e| format!("open `{}` to all: {e}", file.display()))?;
    let target = fs::canonicalize("/etc/resolv.conf").map_err(|e| format!("find `/etc/resolv.conf`: {e}"))?;
    mount_bind(&file, &target).map_err(|e| format!("mount over `{}`: {e}", target.display()))
}

/// Makes the rig's authority one that this system trusts, as an administrator does with one of the own network.
fn trust(folder: &Path) -> Result<(), String> {
    let Ok(target) = fs::canonicalize(TRUSTED) else { return Ok(()) };
    let read = |path: &Path| fs::read(path).map_err(|e| format!("read `{}`: {e}", path.display()));
    let file = folder.join("trusted.crt");
    let list = [read(&target)?, b"\n".to_vec(), read(&folder.join(AUTHORITY))?].concat();
    fs::write(&file, list).map_err(|e| format!("write `{}`: {e}", file.display()))?;
    fs::set_permissions(&file, Permissions::from_mode(run::READABLE))
        .map_err(|e| format!("open `{}` to all: {e}", file.display()))?;
    mount_bind(&file, &target).map_err(|e| format!("mount over `{}`: {e}", target.display()))
}

/// Starts the services and waits until they serve.
fn services(folder: &Path) -> Result<Child, String> {
    let program = std::env::current_exe().map_err(|e| format!("find the own executable: {e}"))?;
    let mut child = Command::new(program)
        .arg("serve")
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("start the services: {e}"))?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        // Bounded by the services themselves, which give up on what takes too long.
        BufReader::new(stdout).read_line(&mut line).map_err(|e| format!("hear from the services: {e}"))?;
    }
    if line == serve::READY { Ok(child) } else { Err("the services did not start".to_owned()) }
}

/// Waits for the command, and for every orphan of the namespace.
fn reap(command: &Child, services: &Child) -> Result<u8, String> {
    let id = |child: &Child| i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (command, services) = (id(command), id(services));
    loop {
        let ended = match wait(WaitOptions::empty()) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other.map_err(|e| format!("wait for the command: {e}"))?,
        };
        let Some((pid, status)) = ended else { continue };
        if Some(pid) == command {
            return Ok(code(status));
        }
        if Some(pid) == services {
            return Err("the services ended before the command".to_owned());
        }
    }
}

fn code(status: WaitStatus) -> u8 {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
